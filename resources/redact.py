"""Finds what looks like a secret in a stranger's text: a console, an error of a cloud.

It knows forms, not values: words that name a password (`password: x`, `root password is: x`), a token, a secret or a
key next to something with digits, tokens (bootstrap, JWT, bearer), PEM keys, encoded bodies, passwords in addresses and
those that cloud-init makes. What a boot script prints without any of these goes through (`echo hunter2`). Nor does it
join what colours or line ends have split. Every pattern takes linear time: repetitions are bounded, or cannot start
again within themselves.
"""

from __future__ import annotations

import re

HIDDEN = "***"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----END)[\s\S])*"), r"\1***"),
    (re.compile(r"(?<![\w.+/=-])eyJ[\w.+/=-]{8,}"), HIDDEN),
    # kubeadm's, id.secret; `TOKEN_` may stand before it
    (re.compile(r"(?<![a-z0-9])([a-z0-9]{6})\.[a-z0-9]{16}"), r"\1.***"),
    # User data in base64, an encoded authorization message: matched only from its beginning.
    (re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{80,}"), HIDDEN),
    (re.compile(r"(?m)^[A-Za-z0-9+/=]{40,}[ \t]*\r?$"), HIDDEN),  # the same, wrapped
    (re.compile(r"(?i)\b(bearer|basic)([ \t]{1,4})(?=\S{0,100}[\d=])[\w.~+/=-]{8,}"), r"\1\2***"),
    (re.compile(r"(://[^/\s:@]{1,64}:)[^@/\s]{1,256}@"), r"\1***@"),
    # A sentence may continue after a password's name (`root password is: x`), and a command is called passwd.
    (
        re.compile(
            r"(?i)(?<![a-z])(pass(?:word|wd|phrase)s?\b[\w.\-\"']{0,20}(?: (?:for|of|is)(?: [\w.'\"@-]{1,40}){0,2})?"
            r"[ \t]{0,4}[:=][ \t]{0,4})(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|\S{1,200})"
        ),
        r"\1***",
    ),
    (
        re.compile(
            r"(?i)((?:_pass|password|passwd|token|secret|credential|(?:api|access|private|secret)[_-]?key)[\w.-]{0,40}"
            r"[\"']?[ \t]{0,4}(?:=[ \t]{0,4}|:[ \t]{0,4}(?=[\"']|\S{0,100}\d)))"
            r"(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s\"',;]{1,200})"
        ),
        r"\1***",
    ),
)
_CLOUD_INIT = re.compile(r"(Set the following 'random' passwords\r?\n)((?:[\w.-]{1,32}:\S+(?:\r?\n|\Z))+)")
_AFTER_COLON = re.compile(r":\S+")


def hide_secrets(text: str) -> str:
    """The text without secrets; what is around them stays, so that it still tells what went wrong."""
    text = _CLOUD_INIT.sub(lambda m: m[1] + _AFTER_COLON.sub(f":{HIDDEN}", m[2]), text)
    for pattern, put in _RULES:
        text = pattern.sub(put, text)
    return text
