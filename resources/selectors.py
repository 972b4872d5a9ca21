"""Label selectors, as Kubernetes writes them in specs (meta/v1, LabelSelector)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from resources.base import Key, Labels, Manifest, Name


class LabelSelectorRequirement(Manifest):
    """One condition that labels must meet."""

    key: Key
    """The key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared with `values`."""
    values: list[Name] = Field(default_factory=list)
    """The values for In and NotIn."""

    def matches(self, labels: dict[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


class LabelSelector(Manifest):
    """Which labels are selected: all that meet every condition, so that an empty one selects everything."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that must be there with these values."""
    match_expressions: list[LabelSelectorRequirement] = Field(default_factory=list)
    """Conditions that must all be met."""

    def matches(self, labels: dict[str, str]) -> bool:
        return self.match_labels.items() <= labels.items() and all(r.matches(labels) for r in self.match_expressions)
