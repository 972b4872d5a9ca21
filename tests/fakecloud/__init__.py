"""A second cloud, made up, which keeps the seam for clouds honest: it is as unlike the first one as it can be.

It has no regions; labels in lower case and in other characters; labels of each disk within the list of disks; network
interfaces that are made apart, take time, carry no labels and outlive their VM; and creations that take several calls.
`fakecloud.spec` is what a cloud's module in resources/clouds is, `fakecloud.driver` its driver, `fakecloud.api` the
cloud, `fakecloud.simulated` what makes it one of the simulator's.
"""

from fakecloud.spec import FAKE, FakeProviderSpec

__all__ = ["FAKE", "FakeProviderSpec"]
