"""Images, and the terms by which some of them are sold."""

from __future__ import annotations

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError, invalid
from simulator.clouds.arm.wire import Answer, ArmCall, Row
from simulator.clouds.arm.world import Image, Plan

URN = ("publisher", "offer", "sku", "version")
BY_ID = ("id", "communityGalleryImageId", "sharedGalleryImageId")


class Images:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.accepted: dict[str, list[str]] = {}
        """Plans whose terms a subscription has accepted, as publisher/product/name."""

    def platform(self, reference: Row) -> Image | None:
        """The platform image that a VM's or a disk's reference names by its urn; None for one that is named by id.
        Raises for one that there is not."""
        given = [k for k in BY_ID if reference.get(k)]
        urn = [k for k in URN if reference.get(k)]
        if bool(given) == bool(urn) or len(given) > 1:
            raise invalid(
                "imageReference",
                "Exactly one of id, communityGalleryImageId, sharedGalleryImageId, or a urn is needed.",
            )
        if given:
            self._by_id(str(reference[given[0]]))
            return None
        if len(urn) < len(URN):
            missing = next(k for k in URN if k not in urn)
            raise invalid(
                f"imageReference.{missing}", f"Required parameter 'imageReference.{missing}' is missing (null)."
            )
        image = self._context.world.image(*(str(reference[k]) for k in URN))
        if image is None:
            name = ":".join(str(reference[k]) for k in URN)
            raise ArmError(
                "PlatformImageNotFound",
                f"The platform image '{name}' is not available. Verify that all fields in the storage profile are "
                "correct. For more details about storage profile information, please refer to "
                "https://aka.ms/storageprofile",
                target="imageReference",
            )
        return image

    def size_of(self, reference: Row) -> int:
        """GB of the OS disk that it makes. Raises for an image that there is not."""
        image = self.platform(reference)
        if image is not None:
            return image.disk_gb
        return self._by_id(next(str(reference[k]) for k in BY_ID if reference.get(k)))

    def _by_id(self, id: str) -> int:
        size = next((s for i, s in self._context.world.image_ids.items() if i.lower() == id.lower()), None)
        if size is None:
            raise ArmError("ImageNotFound", f"The image '{id}' is not found.", status=404, target="imageReference")
        return size

    # -------------------------------------------------------------------------------------------------- terms

    def check_plan(self, subscription: str, image: Image | None, given: Row | None) -> None:
        """A VM from an image that is sold names its plan, and its terms have been accepted."""
        if image is None or image.plan is None:
            if given and image is not None:
                raise ArmError(
                    "VMMarketplaceInvalidInput",
                    "Plan information was given for an image that has none: remove it from the request.",
                )
            return
        plan = image.plan
        if not given:
            raise ArmError(
                "VMMarketplaceInvalidInput",
                "Creating a virtual machine from Marketplace image or a custom image sourced from a Marketplace image "
                "requires Plan information in the request. OS disk name is not given.",
            )
        wanted = (plan.name.lower(), plan.product.lower(), plan.publisher.lower())
        if tuple(str(given.get(k, "")).lower() for k in ("name", "product", "publisher")) != wanted:
            raise ArmError(
                "VMMarketplaceInvalidInput",
                f"The plan of the request does not match that of the image: "
                f"{plan.publisher}/{plan.product}/{plan.name}.",
            )
        if _key(plan) not in self._accepted(subscription):
            raise ArmError(
                "MarketplacePurchaseEligibilityFailed",
                f"You have not accepted the legal terms on this subscription: '{subscription}' for this plan. "
                "Before the "
                f"subscription can be used, you need to accept the legal terms of the image: publisher "
                f"'{plan.publisher}', offer '{plan.product}', sku '{plan.name}'.",
            )

    def _accepted(self, subscription: str) -> set[str]:
        from_the_start = {p.lower() for p in self._context.world.accepted_plans}
        return from_the_start | set(self.accepted.get(subscription.lower(), ()))

    def get_agreement(self, call: ArmCall) -> Answer:
        return Answer(body=self._agreement(call, self._plan(call)))

    def create_agreement(self, call: ArmCall) -> Answer:
        """Accepts the terms, or takes that back."""
        plan = self._plan(call)
        accepted = self.accepted.setdefault(call.subscription.lower(), [])
        if not (call.body.get("properties") or {}).get("accepted"):
            accepted[:] = [p for p in accepted if p != _key(plan)]
        elif _key(plan) not in accepted:
            accepted.append(_key(plan))
        row = self._agreement(call, plan)
        return Answer(body=row, changed=[str(row["id"])])

    def _plan(self, call: ArmCall) -> Plan:
        wanted = tuple(call.path[k].lower() for k in ("publisher", "offer", "plan"))
        for image in self._context.world.images:
            plan = image.plan
            if plan and (plan.publisher.lower(), plan.product.lower(), plan.name.lower()) == wanted:
                return plan
        raise ArmError("BadRequest", f"Legal terms were not found for the offer {'/'.join(wanted)}.")

    def _agreement(self, call: ArmCall, plan: Plan) -> Row:
        return {
            "id": f"/subscriptions/{call.subscription}/providers/Microsoft.MarketplaceOrdering"
            f"/offerTypes/virtualmachine/publishers/{plan.publisher}/offers/{plan.product}/plans/{plan.name}/agreements/current",
            "name": plan.name,
            "type": "Microsoft.MarketplaceOrdering/offertypes",
            "properties": {
                "publisher": plan.publisher,
                "product": plan.product,
                "plan": plan.name,
                "accepted": _key(plan) in self._accepted(call.subscription),
            },
        }

    # -------------------------------------------------------------------------------------------- operations

    def get_image(self, call: ArmCall) -> Answer:
        of = call.path
        image = self._context.world.image(of["publisher"], of["offer"], of["sku"], of["version"])
        if image is None or of["version"] == "latest":
            raise ArmError("NotFound", "Artifact: VMImage was not found.")
        row: Row = {
            **self._version_row(call, of["version"]),
            "properties": {
                "osDiskImage": {"operatingSystem": "Linux", "sizeInGb": image.disk_gb},
                "architecture": image.architecture,
                "hyperVGeneration": "V2",
            },
        }
        if image.plan:
            row["properties"]["plan"] = image.plan.model_dump()
        return Answer(body=row)

    def list_versions(self, call: ArmCall) -> Answer:
        """The versions of an image: a plain array, without pages."""
        of = call.path
        image = self._context.world.image(of["publisher"], of["offer"], of["sku"], "latest")
        if image is None:
            raise ArmError("NotFound", "Artifact: VMImage was not found.")
        versions = sorted(image.versions, reverse="desc" in call.query.get("$orderby", ""))
        top = int(call.query.get("$top", len(versions)))
        return Answer(body=[self._version_row(call, v) for v in versions[:top]])

    def _version_row(self, call: ArmCall, version: str) -> Row:
        of = call.path
        return {
            "id": f"/Subscriptions/{call.subscription}/Providers/Microsoft.Compute/Locations/{of['location']}"
            f"/Publishers/{of['publisher']}/ArtifactTypes/VMImage/Offers/{of['offer']}/Skus/{of['sku']}/Versions/{version}",
            "name": version,
            "location": self._context.world.location,
        }


def _key(plan: Plan) -> str:
    return f"{plan.publisher}/{plan.product}/{plan.name}".lower()
