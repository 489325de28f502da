"""Settings: a secret value with a secret name seals a configuration file; ordinary text seals nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from git_envhist.secrets.rules import SecretRules
from git_envhist.secrets.setting_values import entropy, holds_secret_setting
from git_envhist.secrets.tokens import SCAN_LIMIT

RULES = SecretRules()
HEX = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"
KUBERNETES = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\ndata:\n  a: aHVudGVyMg==\n"

SECRET = (
    "db_password: Xk29!fqL",
    "password=hunter2",
    "spring.datasource.password=S3cr3tPg!2024",
    '"ConnectionPassword": "q8Zr!ttL0"',
    '  POSTGRES_PASSWORD: "tr0ub4dor&3"',
    "<password>Zk3q9fTT</password>",
    '<add key="ClearTextPassword" value="n0tV3ryG00d" />',
    f'auth_token = "{HEX}"',
    f"api_key: {HEX}",
    "client_secret=Zx9-8yTq_77LmNoPqRs",
    f"secret_key_base: {HEX}{HEX}",
    "storePassword=s3cretStore",
    f'npmAuthToken: "{HEX[:8]}-{HEX[:4]}-{HEX[4:8]}-{HEX[8:12]}-{HEX[12:24]}"',
    '{"jwtSecret":"kJ8s7Df6Gh5Jk4Lz3Xc2Vb1N"}',
    KUBERNETES,
)
ORDINARY = (
    "password: changeme", "password: ${DB_PASSWORD}", 'password = os.environ["X"]', "password_file: /run/secrets/x1",
    '"password": "Passwort"', '"password": "Passwort vergessen?"', '"token": "string"', "secretName: my-secret-2",
    "tokenizer: gpt2-large-1234", '"key": "value123"', "key: 1234567890abcdef", "author: someone1234567890",
    "api_key: your-api-key-1234", "token: ${{ secrets.GITHUB_TOKEN }}", "password: ENC[AES256_GCM,data:1234]",
    "auth: basic", "pass: true", "password: {{ .Values.password }}", '"@auth0/auth0-react": "^1.2.3"',
    '"jsonwebtoken": "^9.0.0"', '"csrf-token": "2.3.1"', "max_tokens: 4096",
    KUBERNETES.replace("Secret", "SealedSecret"),
    "token_endpoint_auth_method=client_secret_post", '"password": "^1.2.3-beta.1"', "token=123456789",
)  # fmt: skip


@pytest.mark.parametrize("text", SECRET)
def test_secret_setting_seals_a_configuration_file_but_not_a_program(text: str) -> None:
    assert holds_secret_setting(text.encode(), program=False)
    assert RULES.by_content(b"config/app.yml", text.encode())
    assert RULES.by_content(b"notes", f"first\n{text}\nlast\n".encode())


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_setting_seals_nothing(text: str) -> None:
    assert not holds_secret_setting(text.encode(), program=False)
    assert not RULES.by_content(b"config/app.yml", text.encode())


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f'API_KEY = "{HEX}"', True),
        ("const apiToken = `Zk3q9fTTx7Lm2Qp8Vw4Rs`;", True),
        ('config["client_secret"] = "Zk3q9fTTx7Lm2Qp8Vw4Rs"', True),
        ('PASSWORD = "hunter2"', False),
        ('token = "this_is_a_long_identifier_name"', False),
        ('secret_key = "django.contrib.auth.models"', False),
        (f'checksum = "{HEX}"', False),
        (f'api_key = os.environ["X"]  # {HEX}', False),
    ],
)
def test_program_is_sealed_only_for_a_long_random_text_in_quotes(text: str, secret: bool) -> None:
    assert RULES.by_content(b"src/settings.py", text.encode()) is secret


def test_no_file_of_the_standard_library_is_sealed_for_a_setting() -> None:
    top = Path(os.__file__).parent
    for path in top.glob("*.py"):
        data = path.read_bytes()
        assert not holds_secret_setting(data, program=True), path


def test_text_in_utf_16_is_searched_for_settings() -> None:
    text = "first\r\npassword=hunter2\r\n"
    assert RULES.by_content(b"a.ini", b"\xff\xfe" + text.encode("utf-16-le"))
    assert RULES.by_content(b"a.ini", b"\xfe\xff" + text.encode("utf-16-be"))


@pytest.mark.parametrize(
    "piece", ["password=", "key", "secret:\n", '"a":"', "kind: Secret\n", "x" * 30 + '"', "token: a1B2c3 "]
)
def test_no_text_takes_long_to_search_for_settings(piece: str) -> None:
    text = (piece * SCAN_LIMIT)[:SCAN_LIMIT].encode()
    start = time.perf_counter()
    for program in (False, True):
        holds_secret_setting(text, program=program)
    assert time.perf_counter() - start < 5


def test_entropy_depends_on_the_frequency_of_letters() -> None:
    assert entropy(b"aaaa") == 0
    assert entropy(b"abcd") == 2
