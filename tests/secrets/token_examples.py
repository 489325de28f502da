"""An example token for each vendor, in the documented form and filled with random letters.

The tokens are assembled here, so that scanners for secrets do not report this file. A secret is described by parts:
`A20` are 20 letters and digits, `H` hexadecimal, `L` lower case letters and digits, `U` capitals and digits, `B`
base32; `=` precedes literal text, `·` is a space.
"""

from __future__ import annotations

import hashlib

ALPHABETS = {
    "A": "aB3dE5gH7jK9mN2pQ4rS6tU8vW1xY5zC",
    "H": "0123456789abcdef",
    "L": "abcdefghijklmnopqrstuvwxyz012345",
    "U": "ABCDEFGHJKLMNPQRSTUVWXYZ23456789",
    "B": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "D": "0123456789",
}
UUID = "H8 =- H4 =- H4 =- H4 =- H12"

EXAMPLES = {
    "gitlab_runner": ("GR1348941", "A20"),
    "trello": ("ATTA", "H72"),
    "azure_devops": ("x", "A75 =AZDO A4"),
    "sourcegraph": ("sgp_", "H16 =_ H40"),
    "crates": ("cio", "A32"),
    "nuget": ("oy2", "L43"),
    "clojars": ("CLOJARS_", "L60"),
    "packagist": ("packagist_ack_", "H68"),
    "artifactory": ("AKCp", "A69"),
    "circleci": ("CCIPAT_", "A22 =_ H40"),
    "buildkite": ("bkua_", "H40"),
    "sonar": ("squ_", "H40"),
    "infracost": ("ico-", "A32"),
    "prefect": ("pnu_", "A36"),
    "dbt": ("dbtc_", "A40"),
    "readme": ("rdme_", "L70"),
    "aws_secret": ("aws_secret_access_key = ", "A40"),
    "aws_bedrock": ("ABSK", "A120 =="),
    "amazon_mws": ("amzn.mws.", UUID),
    "azure_sas": ("?sig=", "A43 =%3D"),
    "azure_client": ("a1B8Q~", "A34"),
    "firebase": ("AAAAa1B2c3D:APA91b", "A134"),
    "alibaba": ("LTAI", "A20"),
    "tencent": ("AKID", "A32"),
    "yandex": ("AQVN", "A36"),
    "cloudflare": ("cfut_", "A48"),
    "cloudflare_ca": ("v1.0-", "H24 =- H146"),
    "fly": ("fm2_", "A80"),
    "heroku": ("HRKU-", "A60"),
    "netlify": ("nfp_", "A36"),
    "vercel_blob": ("vercel_blob_rw_", "A16 =_ A30"),
    "scalingo": ("tk-us-", "A48"),
    "render": ("rnd_", "A32"),
    "neon": ("napi_", "L64"),
    "xata": ("xau_", "A40"),
    "mongodb_atlas": ("mdb_sa_sk_", "A40"),
    "openshift": ("sha256~", "A43"),
    "terraform": ("x", "A13 =.atlasv1. A67"),
    "dynatrace": ("dt0c01.", "B24 =. B64"),
    "harness": ("pat.", "A22 =. H24 =. A20"),
    "defined": ("dnkey-", "B26 =- B52"),
    "octopus": ("API-", "U26"),
    "langfuse": ("sk-lf-", UUID),
    "langsmith": ("lsv2_pt_", "H32 =_ H10"),
    "nvidia": ("nvapi-", "A64"),
    "fireworks": ("fw_", "A24"),
    "cerebras": ("csk-", "L48"),
    "elevenlabs": ("sk_", "H48"),
    "pinecone": ("pcsk_", "A5 =_ A60"),
    "jina": ("jina_", "A60"),
    "tavily": ("tvly-", "A32"),
    "apify": ("apify_api_", "A36"),
    "e2b": ("e2b_", "H40"),
    "roboflow": ("rf_", "A28"),
    "together": ("tgp_v1_", "A43"),
    "logfire": ("pylf_v1_", "=eu_ A43"),
    "discord": ("M", "A23 =. A6 =. A38"),
    "teams_webhook": ("webhook.office.com/webhookb2/", f"{UUID} =@ {UUID} =/IncomingWebhook/ H32 =/ {UUID}"),
    "zapier": ("hooks.zapier.com/hooks/catch/1234567/", "L7"),
    "twilio": ("SK", "H32"),
    "mailgun": ("key-", "H32"),
    "mailchimp": ("a", "H31 =-us21"),
    "brevo": ("xkeysib-", "H64 =- A16"),
    "resend": ("re_", "A8 =_ A24"),
    "square_access": ("EAAA", "A60"),
    "braintree": ("access_token$production$", "L16 =$ H32"),
    "plaid": ("access-production-", UUID),
    "flutterwave": ("FLWSECK-", "H32 =-X"),
    "lob": ("live_", "H35"),
    "duffel": ("duffel_live_", "A43"),
    "easypost": ("EZAK", "A54"),
    "shippo": ("shippo_live_", "H40"),
    "notion": ("ntn_", "A46"),
    "airtable": ("patAb1Cd2Ef3Gh4Ij.", "H64"),
    "asana": ("2/1234567890123456/1234567890123456:", "H32"),
    "hubspot": ("pat-eu1-", UUID),
    "intercom": ("dG9rOj", "A54"),
    "typeform": ("tfp_", "A44 =_ A14"),
    "contentful": ("CFPAT-", "A43"),
    "frameio": ("fio-u-", "A64"),
    "adobe": ("p8e-", "A32"),
    "adafruit": ("aio_", "A28"),
    "wakatime": ("waka_", UUID),
    "mapbox": ("sk.eyJ", "A80 =. A22"),
    "facebook": ("EAA", "A180"),
    "twitter": ("A" * 20, "=A A80"),
    "dropbox": ("sl.", "A136"),
    "rapidapi": ("0", "L9 =msh L15 =p1 L6 =jsn L12"),
    "maxmind": ("x", "A5 =_ A29 =_mmk"),
    "honeycomb": ("hcaik_", "L58"),
    "posthog": ("phx_", "A43"),
    "launchdarkly": ("sdk-", UUID),
    "stytch": ("secret-live-", "A36"),
    "ory": ("ory_pat_", "A32"),
    "settlemint": ("sm_pat_", "A16"),
    "onepassword_key": ("A3-ABC234-", "U6 =- U5 =- U5 =- U5 =- U5"),
    "matrix": ("syt_", "A12 =_ =AbCdEfGhIjKlMnOpQrSt =_ A6"),
    "nkey": ("SU", "B56"),
    "stellar": ("SB", "B54"),
    "nostr": ("nsec1", "=qpzry9x8gf2tvdw0s3jn54khce6mua7lqpzry9x8gf2tvdw0s3jn54khce"),
    "bip32": ("xprv", "=9s21ZrQH A99"),
    "wireguard": ("PrivateKey = ", "A43 =="),
    "git_header": ("Authorization: Bearer ", "A32"),
    "crypt": ("$2b$12$", "A53"),
    "putty": ("PuTTY-User-Key-File-3", "=:·ssh-rsa\nEncryption:·none\nPublic-Lines:·1\n A64 =\nPrivate-Lines:·1\n A64"),
    "jwk": ('"d": "', "A43"),
}  # fmt: skip


def spelled(secret: str) -> str:
    """Return the secret described by parts; the result is always the same."""
    return "".join(_part(number, part) for number, part in enumerate(secret.split(" ")))


def _part(number: int, part: str) -> str:
    if part.startswith("="):
        return part[1:].replace("·", " ")
    letters = ALPHABETS[part[0]]
    length = int(part[1:])
    digest = hashlib.shake_256(f"{number} {part}".encode()).digest(length)
    return "".join(letters[byte % len(letters)] for byte in digest)
