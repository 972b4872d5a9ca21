"""User data from a Secret, for a launch.

Compressed user data is unpacked here, so that its placeholders are filled like any other's, and compressed again by the
driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import SecretStr

from activities.secrets import SecretData
from drivers.errors import DriverError
from resources import userdata
from resources.errors import ErrorClass
from resources.machine.manifest import USER_DATA, SecretRef


@dataclass(frozen=True)
class UserData:
    text: SecretStr
    """Its placeholders are not filled yet."""
    compressed: bool = False


def user_data_of(secret: SecretData, ref: SecretRef) -> UserData:
    """The Secret's user data. Raises SecretMissing where there is none, and DriverError of class invalid for what
    cannot be any."""
    if USER_DATA in secret.binary:
        given = secret.binary[USER_DATA].get_secret_value()
    else:
        given = secret.require(USER_DATA, ref).get_secret_value().encode()
    try:
        found = userdata.unpack(given)
    except userdata.UserDataError as e:
        words = f"Secret {ref.namespace}/{ref.name}: its {USER_DATA} {e}"
        raise DriverError(ErrorClass.INVALID, words) from None
    return UserData(SecretStr(found.text), found.compressed)
