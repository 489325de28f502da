"""Tokens are found by their form, and masked in text that people write."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.secrets import token_prefilter, tokens
from git_envhist.secrets import tokens as tokenforms
from git_envhist.secrets.rules import SecretRules
from git_envhist.secrets.tokens import SCAN_LIMIT, find_tokens, has_anchor, mask_tokens
from tests.secrets import token_examples as tokenexamples
from tests.secrets.token_examples import spelled

RULES = SecretRules()
DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "security.md"
BODY = "aB3dE5gH7jK9mN2pQ4rS6tU8vW0xY1zC3eF5"
HEX = "0a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d"
ARMOUR = "MIIEowIBAAKCAQEAqKpRgnn6yq26U3yt5YFZquyukfRjbMXp"

# By kind: the readable part, the secret part and the following text. They are assembled here, so that scanners for
# secrets do not report this file.
EXAMPLES = {
    **{kind: (prefix, spelled(secret)) for kind, (prefix, secret) in tokenexamples.EXAMPLES.items()},
    "aws": ("AKIA", "Q3EGRIZ5JK2MN7PO"),
    "github": ("ghp_", BODY),
    "gitlab": ("glpat-", BODY[:20]),
    "slack": ("xoxb-", "123456789012-1234567890123-" + BODY[:24]),
    "slack_webhook": ("hooks.slack.com/services/", "T0123ABCD/B0123ABCD/" + BODY[:24]),
    "discord_webhook": ("discord.com/api/webhooks/123456789/", BODY * 2),
    "stripe": ("sk_live_", BODY[:24]),
    "stripe_webhook": ("whsec_", BODY[:32]),
    "anthropic": ("sk-ant-api03-", BODY + "-_" + BODY),
    "openrouter": ("sk-or-v1-", HEX * 2),
    "openai": ("sk-proj-", BODY + "_-" + BODY),
    "sk": ("sk-", BODY + BODY[:12]),
    "google": ("AIza", "Sy" + BODY[:33]),
    "google_client": ("GOCSPX-", BODY[:28]),
    "google_access": ("ya29.", "a0Af" + BODY * 2),
    "google_refresh": ("1//0", "4" + BODY + "-" + BODY),
    "npm": ("npm_", BODY),
    "pypi": ("pypi-AgE", "IcHlwaS5vcmc" + BODY * 2),
    "rubygems": ("rubygems_", HEX + HEX[:16]),
    "docker": ("dckr_pat_", BODY[:27]),
    "sendgrid": ("SG.", BODY[:22] + "." + BODY + BODY[:7]),
    "huggingface": ("hf_", BODY[:34]),
    "groq": ("gsk_", BODY + BODY[:16]),
    "xai": ("xai-", BODY * 2),
    "perplexity": ("pplx-", BODY + BODY[:12]),
    "replicate": ("r8_", BODY + "a"),
    "digitalocean": ("dop_v1_", HEX * 2),
    "shopify": ("shpat_", HEX),
    "vault": ("hvs.", BODY * 2),
    "databricks": ("dapi", HEX),
    "atlassian": ("ATATT3", BODY * 3),
    "linear": ("lin_api_", BODY + "abcd"),
    "grafana": ("glsa_", BODY[:32] + "_0a1b2c3d"),
    "sentry": ("sntrys_", "eyJ" + BODY * 2),
    "postman": ("PMAK-", HEX[:24] + "-" + HEX + "0a"),
    "pulumi": ("pul-", HEX + HEX[:8]),
    "doppler": ("dp.pt.", BODY + BODY[:7]),
    "newrelic": ("NRAK-", BODY[:27]),
    "planetscale": ("pscale_tkn_", BODY + BODY[:7]),
    "supabase": ("sbp_", HEX + HEX[:8]),
    "square": ("sq0csp-", BODY + BODY[:7]),
    "figma": ("figd_", BODY + "-_ab"),
    "tailscale": ("tskey-auth-", BODY[:17] + "-" + BODY[:20]),
    "age": ("AGE-SECRET-KEY-1", "QPZRY9X8GF" * 5 + "QPZRY9X8"),
    "envhist": ("envhist-key-1-0a1b2c3d4e5f-", BODY.lower() * 3),
    "onepassword": ("ops_eyJ", BODY * 8),
    "telegram": ("1234567890:AA", BODY[:33]),
    "azure": ("AccountKey=", BODY * 2 + BODY[:14] + "=="),
    "azure_shared": ("SharedAccessKey=", BODY + BODY[:7] + "="),
    "git_header_upper": ("extraheader = AUTHORIZATION: basic ", BODY),
    "jwt": ("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + BODY),
    "private_key": (
        "-----BEGIN RSA PRIVATE KEY-----",
        f"\n{ARMOUR}\n{ARMOUR}=\n-----END RSA PRIVATE KEY-----",
    ),
    "url_password": ("postgres://app:", "hunter2"),
}
OPTIONAL_END = {"url_password": "@db.internal/app"}
ANY_TOKEN = st.one_of(*(st.from_regex(tokens._form(kind), fullmatch=True) for kind in tokenforms.TOKENS))


@pytest.mark.parametrize("kind", [*tokenforms.TOKENS, token_prefilter.URL_PASSWORD])
def test_each_kind_is_found_and_masked_after_its_prefix(kind: str) -> None:
    prefix, secret = EXAMPLES[kind]
    end = OPTIONAL_END.get(kind, "")
    for before, after in (("", ""), ('key = "', '"\n'), ("use ", " now"), ("A=", "\nB=2"), ("(", ")")):
        text = f"{before}{prefix}{secret}{end}{after}".encode()
        assert kind in find_tokens(text)
        assert RULES.by_content(b"notes", text)
        masked = mask_tokens(text).decode()
        assert masked == f"{before}{prefix}***{end}{after}" or masked == f"{before}***{after}"
        assert find_tokens(masked.encode()) == ()


@given(ANY_TOKEN)
def test_every_token_of_the_table_has_an_anchor(token: bytes) -> None:
    assert has_anchor(token)
    assert find_tokens(token)


@given(st.one_of(ANY_TOKEN, *(st.from_regex(anchor) for anchor in token_prefilter.ANCHORS.values())))
def test_quick_check_misses_no_anchor(text: bytes) -> None:
    assert tokens._may_have_anchor(text) or not has_anchor(text)


@pytest.mark.parametrize(
    "text",
    [
        "ghp_" + "x" * 36, "sk-ant-api03-your-key-goes-here-and-here", "npm_config_registry_and_some_more_words_of_it",
        "AKIAIOSFODNN7EXAMPLE", "postgres://user:password@localhost/db", "postgres://postgres:postgres@db",
        "https://user:${PASSWORD}@host", "https://{user}:{password}@host", "redis://:$REDIS_PASSWORD@host",
        "http://localhost:8080/a@b", "https://example.com:443?to=a@b.c", "git@github.com:user/project.git",
        "task-" + BODY, "desk-" + BODY, "-----BEGIN CERTIFICATE-----\n" + ARMOUR,
        'if "-----BEGIN PRIVATE KEY-----" in text: return find(text)', "-----BEGIN PUBLIC KEY-----\n" + ARMOUR,
        "sha512-" + BODY * 2, "integrity hash_" + BODY, "sk-fading-circle sk-cube-grid", "eyJhbGciOiJub25lIn0",
        "PASSWORD=hunter2", "token = secrets.token_hex()", "",
    ],
)  # fmt: skip
def test_similar_text_seals_no_file(text: str) -> None:
    assert find_tokens(text.encode()) == ()
    assert not RULES.by_content(b"notes.py", text.encode())


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("set PASSWORD=hunter2 and retry", "set PASSWORD=*** and retry"),
        ("DATABASE_PASSWORD='hunter2 x'", "DATABASE_PASSWORD='*** x'"),
        ("run --token=abcd1234 --force", "run --token=*** --force"),
        ("AWS_SECRET_ACCESS_KEY=abcdef;", "AWS_SECRET_ACCESS_KEY=***;"),
        ('{"api_key": "abcd1234", "a": 1}', '{"api_key": "***", "a": 1}'),
        ("curl -H 'Authorization: Bearer abcd1234'", "curl -H 'Authorization: Bearer ***'"),
        ("postgres://app:p@ss@db/x", "postgres://app:***@db/x"),
        ("mysql://root:root@db", "mysql://root:***@db"),
    ],
)
def test_value_of_a_named_secret_is_masked_in_a_sentence(text: str, masked: str) -> None:
    assert mask_tokens(text.encode()).decode() == masked


@pytest.mark.parametrize(
    "text",
    [
        "before auth refactor", "fix password: validation fails", "max_tokens=4096", "token=$TOKEN", "secret=<yours>",
        "password=${DB_PASSWORD}", "PASSWORD=***", "https://user:${PASSWORD}@host", "the token is gone",
        "no\u2400w a\nlonger text, with tabs\t and ümlauts", "token=true", "bump ghp_ prefix", "tokenizer=fast",
    ],
)  # fmt: skip
def test_ordinary_sentence_is_unchanged(text: str) -> None:
    assert mask_tokens(text.encode()) == text.encode()


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30), ANY_TOKEN, st.sampled_from([b"token=", b"://a:", b"@", b'"', b"***"])
        )
    )
)
def test_masking_is_complete_and_idempotent(parts: list[bytes]) -> None:
    masked = mask_tokens(b"".join(parts))
    assert mask_tokens(masked) == masked
    assert find_tokens(masked) == ()


@settings(max_examples=300)
@given(st.text(st.sampled_from("ghp_sk-ant:/@=*xA1'\" eyJ.token")).map(str.encode))
def test_masking_ends_for_text_that_is_nearly_a_token(text: bytes) -> None:
    masked = mask_tokens(text)
    assert mask_tokens(masked) == masked


@pytest.mark.parametrize(
    "piece", [b"eyJ", b"eyJ-", b"://", b"://a:", b"a", b"sk-", b"-----BEGIN PRIVATE KEY-----", b"xoxb-a.", b"ghp_",
              b"-", b"SG.aaaaaaaaaaaaaaaaaaaa", b"token=", b"a.a-",
              b"-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAA\n"]
)  # fmt: skip
def test_search_time_is_bounded_for_any_text(piece: bytes) -> None:
    text = piece * (SCAN_LIMIT // len(piece))
    start = time.perf_counter()
    find_tokens(text)
    mask_tokens(text)
    assert time.perf_counter() - start < 5


def test_key_file_of_any_size_is_secret_only_with_a_private_key() -> None:
    certificates = b"-----BEGIN CERTIFICATE-----\n" + ARMOUR.encode() * 4000
    assert not RULES.by_content(b"site/cacert.pem", certificates)
    assert RULES.by_content(b"tls/server.pem", certificates + b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    assert RULES.by_content(b"tls.KEY", b"-----BEGIN EC PRIVATE KEY-----\n")
    assert not RULES.by_content(b"slides.key", b"PK\x03\x04")


def test_service_account_is_secret_under_any_name() -> None:
    content = f'{{"private_key": "-----BEGIN PRIVATE KEY-----\\n{ARMOUR}\\n-----END PRIVATE KEY-----\\n"}}'
    assert RULES.by_content(b"project-1234.json", content.encode())
    assert ARMOUR.encode() not in mask_tokens(content.encode())


def test_large_files_and_binary_files_are_not_searched() -> None:
    token = "".join(EXAMPLES["github"]).encode()
    assert RULES.by_content(b"a", token + b" " * (SCAN_LIMIT - len(token)))
    assert not RULES.by_content(b"a", token + b" " * SCAN_LIMIT)
    assert not RULES.by_content(b"app.db", b"SQLite format 3\0" + token)


def test_document_lists_every_kind_of_token() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").split("\n### By content\n")[1].split("\n#")[0]
    shown = [line.removeprefix("- ") for line in section.splitlines() if line.startswith("- ")]
    assert shown == [what for what, _, _ in tokenforms.TOKENS.values()] + [tokens.URL_WHAT]
    assert re.search(rf"\b{SCAN_LIMIT >> 10} KiB", section)


def test_random_url_signs_are_not_a_password() -> None:
    noise = b"\0\xf1://\x9c\x02:\xe7\x81k@\xff"
    assert find_tokens(noise) == ()
    # An address with a password is found also between binary data, as in a page of a database.
    assert find_tokens(noise + b"\0postgres://app:hunter2-Zq@db.example/x\xfe") == ("url_password",)
