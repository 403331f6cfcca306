"""Messages without the secrets of addresses."""

from __future__ import annotations

import pytest

from transformer.errors import InputError, without_secrets

PLAIN = "https://example.org/a/train.en.gz cannot be downloaded (HTTP 404)"
OTHER = "sacrebleu:wmt14/full, treebank:/a?b/c@d and C:/a@b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (PLAIN, PLAIN),
        (OTHER, OTHER),
        ("at https://me:S3@h.org:80/a: no", "at https://h.org:80/a: no"),
        ("HTTP://S3@h.org/a@b/c", "HTTP://h.org/a@b/c"),
        ("socks5h://me:S3@t:S3@1.2.3.4", "socks5h://1.2.3.4"),
        ("('https://h.org/a?token=S3', 1)", "('https://h.org/a?… 1)"),
        ("https://h.org/a?token=S3#S3 ftp://S3@h/x", "https://h.org/a?… ftp://h/x"),
        ("https://h.org/a#S3", "https://h.org/a?…"),
        ("https://h.org/get?file=train.en.gz", "https://h.org/get?….gz"),
        ("cannot find https:/me:S3@h.org/a?S3", "cannot find https:/h.org/a?…"),
    ],
)
def test_addresses_are_shown_without_passwords_and_queries(text: str, shown: str) -> None:
    assert without_secrets(text) == str(InputError(text)) == shown
    assert without_secrets(shown) == shown
