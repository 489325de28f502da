"""Find and mask tokens of known forms: the table of forms, and the search.

Each form is a prefix that identifies its kind and stays readable, and a secret part. The table contains only
unmistakable forms, one line per vendor's form, maintained by hand from the vendors' documentation: a long word alone
does not make a file secret. `docs/internals/security.md` shows the same table.

A new form needs three things: a line here, a sign in `SIGNS` or an expression in `ANCHORS` (a test generates tokens
of every form and requires an anchor), and an example in `tests/secrets/test_tokens.py`.

Most files contain no token. So `token_prefilter` first searches a file for signs, and only the forms that a sign
allows are matched: 64 MB/s over the sources of Python and its packages, for 158 forms (files up to 64 KiB, two shared
cores; measure with `python -m tests.secrets.measure_secrets`).
"""

from __future__ import annotations

import re
from functools import cache

# The text between the armor lines of a key, also inside a string of JSON or of a program.
ARMOUR = rb"(?:\\r|\\n|[\s\"',+>|A-Za-z0-9+/=:.()]|-(?!----))*(?:-----END [A-Z0-9 ]{0,40}-----)?"

UUID = rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![\w-])"
LINES = rb"(?:[A-Za-z0-9+/=]{16,64}(?:\r?\n(?=[A-Za-z0-9+/=]{16}))?)+"

Form = tuple[str, bytes, bytes]

CODE: dict[str, Form] = {
    "github": ("GitHub tokens", rb"g(?:h[pousr]_|ithub_pat_)", rb"\w{30,}"),
    "gitlab": (
        "GitLab tokens",
        rb"gl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|wt|soat|ffct)-",
        rb"[\w-]{20,}(?:\.[\w.-]+)?",
    ),
    "gitlab_runner": ("GitLab runner registrations", rb"GR1348941", rb"[\w-]{20,}"),
    "atlassian": ("Atlassian tokens", rb"AT(?:ATT3|CTT3|BB)", rb"[\w=-]{28,}"),
    "trello": ("Trello tokens", rb"ATTA", rb"[0-9a-fA-F]{64,}"),
    "azure_devops": ("Azure DevOps tokens", rb"[A-Za-z0-9]", rb"[A-Za-z0-9]{74,75}AZDO[A-Za-z0-9]{4}(?!\w)"),
    "sourcegraph": ("Sourcegraph tokens", rb"sg[psd]_", rb"(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}"),
    "npm": ("npm tokens", rb"npm_", rb"[A-Za-z0-9]{36,}"),
    "pypi": ("PyPI tokens", rb"pypi-AgE", rb"[\w-]{50,}"),
    "rubygems": ("RubyGems keys", rb"rubygems_", rb"[0-9a-f]{48}"),
    "crates": ("crates.io tokens", rb"cio", rb"[A-Za-z0-9]{32}(?!\w)"),
    "nuget": ("NuGet keys", rb"oy2", rb"[a-z0-9]{43}(?!\w)"),
    "clojars": ("Clojars tokens", rb"CLOJARS_", rb"[a-z0-9]{60}"),
    "packagist": ("Packagist tokens", rb"packagist_(?:ack|out|org|upd|mig)_", rb"[0-9a-f]{40,}"),
    "artifactory": ("Artifactory keys", rb"(?:AKCp|cmVmdGtuOj)", rb"[A-Za-z0-9]{50,}"),
    "docker": ("Docker Hub tokens", rb"dckr_(?:pat|oat)_", rb"[\w-]{20,}"),
    "circleci": ("CircleCI tokens", rb"CCIP(?:AT|RJ)_", rb"\w{30,}"),
    "buildkite": ("Buildkite tokens", rb"bk(?:ua|at|ct|pi|ps)_", rb"[A-Za-z0-9]{32,}"),
    "sonar": ("SonarQube tokens", rb"sq[pua]_", rb"[0-9a-f]{40}"),
    "postman": ("Postman keys", rb"PMAK-", rb"[0-9a-f]{24}-[0-9a-f]{34}"),
    "pulumi": ("Pulumi tokens", rb"pul-", rb"[0-9a-f]{40}"),
    "doppler": ("Doppler tokens", rb"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]+\.)?", rb"[A-Za-z0-9]{40,}"),
    "infracost": ("Infracost keys", rb"ico-", rb"[A-Za-z0-9]{32}(?!\w)"),
    "prefect": ("Prefect keys", rb"pn[ub]_", rb"[A-Za-z0-9]{36}(?!\w)"),
    "dbt": ("dbt Cloud tokens", rb"dbt[cu]_", rb"[\w=-]{30,}"),
    "readme": ("ReadMe keys", rb"rdme_", rb"[a-z0-9]{60,}"),
}  # fmt: skip

CLOUDS: dict[str, Form] = {
    "aws": ("AWS access key ids", rb"A(?:KIA|SIA|BIA|CCA)", rb"[A-Z2-7]{16}(?![A-Za-z0-9])(?<!EXAMPLE)"),
    "aws_secret": (
        "AWS secret access keys",
        (rb"(?:aws_?|AWS_?)?(?:secret|SECRET|Secret)_?(?:[aA]ccess|ACCESS)_?(?:[kK]ey|KEY)"
        rb"[\"']?[ \t]{0,4}[=:>]{1,2}[ \t]{0,4}[\"']?"),
        rb"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])(?<!EXAMPLEKEY)",
    ),
    "aws_bedrock": ("AWS Bedrock keys", rb"(?:ABSK|bedrock-api-key-)", rb"[\w+/=]{60,}"),
    "amazon_mws": ("Amazon MWS tokens", rb"amzn\.mws\.", UUID),
    "azure": ("Azure account keys", rb"AccountKey=", rb"[A-Za-z0-9+/]{40,}={0,2}"),
    "azure_shared": ("Azure shared access keys", rb"SharedAccessKey=", rb"[A-Za-z0-9+/]{40,}={0,2}"),
    "azure_sas": ("Azure SAS signatures", rb"[?&](?:amp;)?sig=", rb"[A-Za-z0-9%+/]{40,}(?:%3[dD]|=)"),
    "azure_client": ("Azure client secrets", rb"[\w~.]{3}\dQ~", rb"[\w~.-]{31,34}(?![\w~.-])"),
    "google": ("Google API keys", rb"AIza", rb"[\w-]{30,}"),
    "google_client": ("Google client secrets", rb"GOCSPX-", rb"[\w-]{20,}"),
    "google_access": ("Google access tokens", rb"ya29\.", rb"[\w-]{28,}"),
    "google_refresh": ("Google refresh tokens", rb"1//0", rb"[\w-]{28,}"),
    "firebase": ("Firebase messaging keys", rb"AAAA[\w-]{7}:APA91b", rb"[\w-]{100,}"),
    "alibaba": ("Alibaba Cloud key ids", rb"LTAI", rb"[A-Za-z0-9]{16,24}(?!\w)"),
    "tencent": ("Tencent Cloud key ids", rb"AKID", rb"[A-Za-z0-9]{32}(?!\w)"),
    "yandex": ("Yandex Cloud keys", rb"(?:AQVN|YCAJ|YCM)", rb"[\w-]{34,}"),
    "digitalocean": ("DigitalOcean tokens", rb"do[oprt]_v1_", rb"[0-9a-f]{64}"),
    "cloudflare": ("Cloudflare tokens", rb"cf(?:k|ut|at)_", rb"[A-Za-z0-9]{40,}"),
    "cloudflare_ca": ("Cloudflare origin CA keys", rb"v1\.0-", rb"[0-9a-f]{24}-[0-9a-f]{146}"),
    "fly": ("Fly.io tokens", rb"f(?:m[12]|o1)_", rb"[\w+/=-]{40,}"),
    "heroku": ("Heroku keys", rb"HRKU-", rb"[\w-]{36,}"),
    "netlify": ("Netlify tokens", rb"nf[pcou]_", rb"[A-Za-z0-9]{36,}"),
    "vercel_blob": ("Vercel blob tokens", rb"vercel_blob_rw_", rb"\w{30,}"),
    "scalingo": ("Scalingo tokens", rb"tk-us-", rb"[\w-]{48}"),
    "render": ("Render keys", rb"rnd_", rb"[A-Za-z0-9]{28,}"),
    "databricks": ("Databricks tokens", rb"dapi", rb"[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9])"),
    "planetscale": ("PlanetScale secrets", rb"pscale_(?:tkn|pw|oauth)_", rb"[\w.=-]{32,}"),
    "supabase": ("Supabase tokens", rb"sb(?:p|_secret)_", rb"[\w-]{20,}"),
    "neon": ("Neon keys", rb"napi_", rb"[a-z0-9]{40,}"),
    "xata": ("Xata keys", rb"xau_", rb"[A-Za-z0-9]{32,}"),
    "mongodb_atlas": ("MongoDB Atlas secrets", rb"mdb_sa_sk_", rb"[\w-]{36,}"),
    "openshift": ("OpenShift tokens", rb"sha256~", rb"[\w-]{43}"),
    "terraform": ("Terraform Cloud tokens", rb"[A-Za-z0-9]", rb"[A-Za-z0-9]{13}\.atlasv1\.[\w=-]{60,}"),
    "vault": ("HashiCorp Vault tokens", rb"hv[sbr]\.", rb"[\w-]{24,}"),
    "dynatrace": ("Dynatrace tokens", rb"dt0[a-z]\d\d\.", rb"[A-Z2-7]{24}\.[A-Z2-7]{64}"),
    "harness": ("Harness tokens", rb"[ps]at\.", rb"[\w-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
    "tailscale": ("Tailscale keys", rb"tskey-(?:auth|api|client|scim|webhook)-", rb"[\w-]{16,}"),
    "defined": ("Defined Networking keys", rb"dnkey-", rb"[\w=-]{50,}"),
    "octopus": ("Octopus Deploy keys", rb"API-", rb"[A-Z0-9]{26}(?!\w)"),
}  # fmt: skip

MODELS: dict[str, Form] = {
    "anthropic": ("Anthropic keys", rb"sk-ant-(?:[a-z]+\d\d-)?+", rb"[\w-]{20,}"),
    "openrouter": ("OpenRouter keys", rb"sk-or-(?:v\d-)?+", rb"[\w-]{20,}"),
    "openai": ("OpenAI keys", rb"sk-(?:proj|svcacct|admin|None)-", rb"[\w-]{20,}"),
    "langfuse": ("Langfuse keys", rb"sk-lf-", UUID),
    "sk": ("keys of the older form `sk-` and 32 or more letters and digits", rb"sk-", rb"[A-Za-z0-9]{32,}"),
    "langsmith": ("LangSmith keys", rb"lsv2_(?:pt|sk)_", rb"[0-9a-f]{32}_[0-9a-f]{10}"),
    "huggingface": ("Hugging Face tokens", rb"(?:hf|api_org)_", rb"[A-Za-z0-9]{30,}"),
    "groq": ("Groq keys", rb"gsk_", rb"[A-Za-z0-9]{40,}"),
    "xai": ("xAI keys", rb"xai-", rb"[A-Za-z0-9]{60,}"),
    "perplexity": ("Perplexity keys", rb"pplx-", rb"[A-Za-z0-9]{40,}"),
    "replicate": ("Replicate tokens", rb"r8_", rb"[A-Za-z0-9]{35,}"),
    "nvidia": ("NVIDIA keys", rb"nvapi-", rb"[\w-]{50,}"),
    "fireworks": ("Fireworks keys", rb"fw_", rb"[A-Za-z0-9]{24}(?!\w)"),
    "cerebras": ("Cerebras keys", rb"csk-", rb"[a-z0-9]{40,}"),
    "elevenlabs": ("ElevenLabs keys", rb"sk_", rb"[0-9a-f]{48}(?!\w)"),
    "pinecone": ("Pinecone keys", rb"pcsk_", rb"\w{50,}"),
    "jina": ("Jina keys", rb"jina_", rb"[\w-]{50,}"),
    "tavily": ("Tavily keys", rb"tvly-(?:dev-|prod-)?+", rb"[A-Za-z0-9]{28,}"),
    "apify": ("Apify tokens", rb"apify_api_", rb"[A-Za-z0-9]{34,}"),
    "e2b": ("E2B keys", rb"e2b_", rb"[0-9a-f]{40}"),
    "roboflow": ("Roboflow keys", rb"rf_", rb"[A-Za-z0-9]{28}(?!\w)"),
    "together": ("Together keys", rb"tgp_v1_", rb"[\w-]{40,}"),
    "logfire": ("Logfire tokens", rb"pylf_v\d_", rb"\w{40,}"),
}  # fmt: skip

SERVICES: dict[str, Form] = {
    "slack": ("Slack tokens", rb"x(?:ox[abceoprs]|app)-", rb"[\w.-]{16,}"),
    "slack_webhook": ("Slack webhooks", rb"hooks\.slack\.com/(?:services|workflows|triggers)/", rb"[\w/+-]{20,}"),
    "discord_webhook": ("Discord webhooks", rb"discord(?:app)?\.com/api/webhooks/\d+/", rb"[\w-]{30,}"),
    "discord": ("Discord bot tokens", rb"[MNO]", rb"[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])"),
    "teams_webhook": (
        "Microsoft Teams webhooks",
        rb"webhook\.office\.com/webhookb2/",
        rb"[\w@-]{36,}/IncomingWebhook/[\w/-]{32,}",
    ),
    "zapier": ("Zapier webhooks", rb"hooks\.zapier\.com/hooks/catch/\d+/", rb"[\w/]{5,}"),
    "telegram": ("Telegram bot tokens", rb"\d\d{7,9}:AA", rb"[\w-]{32,34}(?![\w-])"),
    "twilio": ("Twilio keys", rb"SK", rb"[0-9a-f]{32}(?!\w)"),
    "sendgrid": ("SendGrid keys", rb"SG\.", rb"[\w-]{16,32}\.[\w-]{16,64}"),
    "mailgun": ("Mailgun keys", rb"key-", rb"[0-9a-f]{32}(?!\w)"),
    "mailchimp": ("Mailchimp keys", rb"[0-9a-f]", rb"[0-9a-f]{31}-us\d{1,2}(?!\w)"),
    "brevo": ("Brevo keys", rb"x(?:key|smtp)sib-", rb"[0-9a-f]{64}-\w{16}"),
    "resend": ("Resend keys", rb"re_", rb"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    "stripe": ("Stripe keys", rb"[sr]k_(?:live|test|prod)_", rb"[A-Za-z0-9]{16,}"),
    "stripe_webhook": ("Stripe webhook secrets", rb"whsec_", rb"[A-Za-z0-9+/=]{16,}"),
    "square": ("Square secrets", rb"sq0(?:atp|csp)-", rb"[\w-]{22,}"),
    "square_access": ("Square access tokens", rb"EAAA", rb"[\w-]{60}(?![\w-])"),
    "braintree": ("Braintree tokens", rb"access_token\$(?:production|sandbox)\$", rb"[0-9a-z]{16}\$[0-9a-f]{32}"),
    "plaid": ("Plaid tokens", rb"access-(?:sandbox|development|production)-", UUID),
    "flutterwave": ("Flutterwave keys", rb"FLWSECK(?:_TEST)?-", rb"[0-9a-zA-Z]{32,}-X"),
    "lob": ("Lob keys", rb"(?:live|test)_", rb"[0-9a-f]{35}(?!\w)"),
    "duffel": ("Duffel tokens", rb"duffel_(?:test|live)_", rb"[\w=-]{43}"),
    "easypost": ("EasyPost keys", rb"EZ[AT]K", rb"[A-Za-z0-9]{54}"),
    "shippo": ("Shippo tokens", rb"shippo_(?:live|test)_", rb"[0-9a-f]{40}"),
    "shopify": ("Shopify tokens", rb"shp(?:at|ca|pa|ss|ua|tka)_", rb"[0-9a-fA-F]{32}"),
    "linear": ("Linear keys", rb"lin_(?:api|oauth)_", rb"[A-Za-z0-9]{32,}"),
    "notion": ("Notion tokens", rb"(?:ntn|secret)_", rb"[A-Za-z0-9]{43,}"),
    "airtable": ("Airtable tokens", rb"pat[A-Za-z0-9]{14}\.", rb"[0-9a-f]{64}"),
    "asana": ("Asana tokens", rb"[012]/\d{10,20}(?:/\d+)?:", rb"[0-9a-f]{32}(?!\w)"),
    "hubspot": ("HubSpot tokens", rb"pat-(?:na[123]|eu1|ap1)-", UUID),
    "intercom": ("Intercom tokens", rb"dG9rOj", rb"[A-Za-z0-9+/=]{50,}"),
    "typeform": ("Typeform tokens", rb"tfp_", rb"[\w.=-]{59}"),
    "figma": ("Figma tokens", rb"fig[do]_", rb"[\w-]{30,}"),
    "contentful": ("Contentful tokens", rb"CFPAT-", rb"[\w-]{43}"),
    "frameio": ("Frame.io tokens", rb"fio-u-", rb"[\w=-]{64}"),
    "adobe": ("Adobe client secrets", rb"p8e-", rb"[\w-]{32}(?![\w-])"),
    "adafruit": ("Adafruit keys", rb"aio_", rb"[A-Za-z0-9]{28}(?!\w)"),
    "wakatime": ("WakaTime keys", rb"waka_", UUID),
    "mapbox": ("Mapbox secret tokens", rb"sk\.eyJ", rb"[\w-]{60,}\.[\w-]{20,}"),
    "facebook": ("Facebook tokens", rb"EAA", rb"[A-Za-z0-9]{100,}"),
    "twitter": ("Twitter bearer tokens", rb"A{20}", rb"[A-Za-z0-9%]{60,}"),
    "dropbox": ("Dropbox tokens", rb"sl\.(?:[uB]\.)?", rb"[\w-]{100,}"),
    "rapidapi": ("RapidAPI keys", rb"[0-9a-z]", rb"[0-9a-z]{9}msh[0-9a-z]{15}p1[0-9a-z]{6}jsn[0-9a-z]{12}"),
    "maxmind": ("MaxMind keys", rb"[A-Za-z0-9]", rb"[A-Za-z0-9]{5}_[A-Za-z0-9]{29}_mmk(?!\w)"),
    "grafana": ("Grafana tokens", rb"gl(?:sa|c)_", rb"[\w+/=]{32,}"),
    "sentry": ("Sentry tokens", rb"sntry[us]_", rb"[\w+/=]{32,}"),
    "newrelic": ("New Relic keys", rb"NR(?:AK|RA|II)-", rb"[\w-]{20,}"),
    "honeycomb": ("Honeycomb keys", rb"hc[a-z]{1,2}ik_", rb"[a-z0-9]{50,}"),
    "posthog": ("PostHog personal keys", rb"phx_", rb"[A-Za-z0-9]{40,}"),
    "launchdarkly": ("LaunchDarkly keys", rb"(?:sdk|api)-", UUID),
    "stytch": ("Stytch secrets", rb"secret-(?:live|test)-", rb"[\w=-]{36}"),
    "ory": ("Ory tokens", rb"ory_(?:pat|at|rt|st|ac|wak)_", rb"[\w.-]{32,}"),
    "settlemint": ("SettleMint tokens", rb"sm_[aps]at_", rb"[A-Za-z0-9]{16}(?!\w)"),
    "onepassword": ("1Password service accounts", rb"ops_eyJ", rb"[\w+/=-]{100,}"),
    "onepassword_key": (
        "1Password secret keys",
        rb"A3-[A-Z0-9]{6}-",
        rb"(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
    ),
    "matrix": ("Matrix access tokens", rb"syt_", rb"[\w=-]{6,}_[A-Za-z]{20}_\w{6}"),
}  # fmt: skip

GENERAL: dict[str, Form] = {
    "age": ("age secret keys", rb"AGE-(?:SECRET-KEY|PLUGIN-[A-Z0-9]{1,30})-1", rb"[A-Z0-9]{58,}"),
    "envhist": (
        "our own keys, as a file and as exported",
        rb"envhist-key(?:-w?[12]-[0-9a-f]{12}(?:[0-9a-f]{20})?-| [12](?:\\[rn]|\s){1,4})",
        rb"(?:\s{0,2}[0-9a-z]){103}[0-9a-z]*",
    ),
    "nkey": ("NATS seeds", rb"S[UANCO]", rb"[A-Z2-7]{56}(?!\w)"),
    "stellar": ("Stellar secret seeds", rb"S[A-D]", rb"[A-Z2-7]{54}(?!\w)"),
    "nostr": ("Nostr secret keys", rb"nsec1", rb"[02-9ac-hj-np-z]{58}"),
    "bip32": ("extended private keys of wallets", rb"[xyz]prv", rb"[1-9A-HJ-NP-Za-km-z]{107}"),
    "wireguard": ("WireGuard keys", rb"P(?:rivate|reshared)Key[ \t]{0,4}=[ \t]{0,4}", rb"[A-Za-z0-9+/]{43}="),
    "git_header": (
        "credentials in an `Authorization:` header",
        rb"[aA]uthorization[\"']?[ \t]{0,4}[:=,][ \t]{0,4}[\"']?(?i:basic|bearer|token)[ \t]{1,4}",
        rb"(?=[\w+/=.~-]{0,400}[0-9])[\w+/=.~-]{20,}",
    ),
    "git_header_upper": (
        "credentials in git's `http.extraHeader`",
        rb"(?:extra[Hh]eader[ \t]{0,4}[= ][ \t]{0,4}\"?)?AUTHORIZATION:[ \t]{0,4}(?i:basic|bearer|token)[ \t]{1,4}",
        rb"[\w+/=.~-]{16,}",
    ),
    "crypt": (
        "hashes of passwords (crypt, bcrypt, argon2)",
        rb"\$(?:2[aby]\$\d\d\$|[56y]\$(?:rounds=\d+\$)?|argon2id?\$)",
        rb"[./A-Za-z0-9$=,+]{43,}",
    ),
    "jwt": ("JSON web tokens", rb"eyJ", rb"[\w-]{10,2000}\.eyJ[\w-]{7,}\.[\w-]{10,}"),
    "private_key": (
        "private keys in PEM or PGP armour",
        rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        rb"(?:\\r|\\n|[\s\"',+>|])*(?:[A-Za-z0-9+/=]{16}|[A-Z][A-Za-z-]{3,15}: )" + ARMOUR,
    ),
    "putty": (
        "PuTTY keys",
        rb"PuTTY-User-Key-File-\d",
        rb": [^\0]{20,4000}?\nPrivate-Lines: \d{1,3}\r?\n" + LINES,
    ),
    "jwk": ("private keys as JWK", rb"\"d\"\s{0,4}:\s{0,4}\"", rb"[\w-]{40,}"),
}  # fmt: skip

# kind -> (description, prefix with a literal first letter or class, secret part)
TOKENS: dict[str, Form] = {**CODE, **CLOUDS, **MODELS, **SERVICES, **GENERAL}


SCAN_LIMIT = 64 << 10
"""Larger files are not searched: they are data, not files that contain a token written by hand."""

MASK = b"***"
LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Placeholders that documentation uses instead of a token.
REAL = rb"(?![xX*.]{4}|[Yy]our|YOUR)"

URL_WHAT = "passwords in URLs (`scheme://user:password@host`)"
# A password that is a variable, or a common placeholder.
URL_VARIABLE = rb"[$%{*<\[(]|[^{}]*[{}]"
URL_USUAL = (
    rb"(?i)(?:pass|passwd|password|pwd|pw|p|secret|token|changeme|example|user|username|postgres|mysql|root|admin"
    rb"|test|guest|xx+|\.\.+|(?:my|your|the)?[_-]?(?:password|secret|token|api[_-]?key))"
)

# `PASSWORD=hunter2`, `--token=abc`, `"api_key": "abc"`: secret in a sentence; in a program ordinary code, so that it
# does not make a file secret.
SETTING = (
    rb"(?i)((?:password|passwd|passphrase|pwd|secret|token|(?:api|access|secret|private|auth|encryption)[_-]?key)"
    rb"(?:=[\"']?|[\"']\s{0,4}:\s{0,4}[\"'])|authorization:\s{0,4}(?:bearer|basic|token)\s{1,4})"
    rb"(?![$%{<(\[=]|\*\*\*|true\b|false\b|none\b|null\b)[^\s\"'`;&|<>]{4,}"
)


def find_tokens(data: bytes) -> tuple[str, ...]:
    """Return the kinds of tokens in some bytes, each once, in the order of the table."""
    from git_envhist.secrets.token_prefilter import (  # loaded late: most captures read no file
        URL_PASSWORD,
        possible_kinds,
    )

    possible = possible_kinds(data)
    if not possible:
        return ()
    found = [kind for kind in _kinds() if kind in possible and _form(kind).search(data) is not None]
    # The signs of a URL occur by chance once in three gigabytes of compressed bytes; a printable password does not.
    binary = b"\0" in data
    if URL_PASSWORD in possible and any(
        _is_real_password(match) and not (binary and _is_noise(match[0])) for match in _url().finditer(data)
    ):
        found.append(URL_PASSWORD)
    return tuple(found)


def mask_tokens(text: bytes) -> bytes:
    """Return the text with `***` for the secret part of tokens, passwords in URLs and values of named secrets."""
    # Masking one token can expose another. Each round leaves fewer bytes that are not asterisks, so this ends.
    while (masked := _mask_once(text)) != text:
        text = masked
    return text


def has_anchor(data: bytes) -> bool:
    """Return whether a token may be in some bytes; False is certain, True is not."""
    from git_envhist.secrets.token_prefilter import possible_kinds  # loaded late: most captures read no file

    return bool(possible_kinds(data))


def _mask_once(text: bytes) -> bytes:
    if _may_have_anchor(text):
        from git_envhist.secrets.token_prefilter import (
            possible_kinds,  # loaded late: few intents can contain a token
        )

        if possible := possible_kinds(text):
            for kind in _kinds():
                if kind in possible:
                    text = _form(kind).sub(_keep_prefix, text)
            text = _url().sub(_keep_user, text)
    # A setting contains one of the two signs.
    return re.sub(SETTING, _keep_prefix, text) if b"=" in text or b":" in text else text


def _may_have_anchor(text: bytes) -> bool:
    """A cheaper `has_anchor` for short texts, without patterns and with more false positives."""
    longest = max(map(len, text.split()), default=0)
    return longest >= MIN_ANCHOR or any(sign in text for sign in SHORT_SIGNS)


def _keep_prefix(match: re.Match[bytes]) -> bytes:
    return bytes(match[1]) + MASK


def _keep_user(match: re.Match[bytes]) -> bytes:
    return bytes(match[0]) if _is_variable(match[2]) else bytes(match[1]) + MASK


def _is_variable(password: bytes) -> bool:
    return re.match(URL_VARIABLE, password) is not None


def _is_real_password(match: re.Match[bytes]) -> bool:
    user = match[1].removeprefix(b"://").removesuffix(b":")
    password = match[2]
    return not (_is_variable(password) or re.fullmatch(URL_USUAL, password) or password == user)


def _is_noise(text: bytes) -> bool:
    try:
        return not text.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return True


@cache
def _kinds() -> tuple[str, ...]:

    return tuple(TOKENS)


# Compiled on demand: few captures read a file with such a sign.
@cache
def _form(kind: str) -> re.Pattern[bytes]:

    _, prefix, secret = TOKENS[kind]
    first = prefix[: _length_of_first(prefix)]
    others = prefix[len(first) :]
    # A prefix counts only at the beginning of a word: `task-` is not `sk-`. The check comes after the first letter,
    # so that the engine can search for that letter.
    if not first or others[:1] in (b"{", b"?"):
        return re.compile(b"((?<![A-Za-z0-9])" + prefix + b")" + REAL + secret)
    begins_word = re.search(first, LETTERS) is not None
    before = b"(?<![A-Za-z0-9]" + first + b")" if begins_word else b""
    return re.compile(b"(" + first + before + others + b")" + REAL + secret)


def _length_of_first(prefix: bytes) -> int:
    """Return the length of the expression for the first letter, or 0 if the prefix begins with a group."""
    if prefix[:1] == b"(":
        return 0
    return prefix.index(b"]") + 1 if prefix[:1] == b"[" else 2 if prefix[:1] == b"\\" else 1


@cache
def _url() -> re.Pattern[bytes]:
    return re.compile(rb"(://[^\s/:@?#\"'<>`\\]{0,256}:)([^\s/?#\"'<>`\\]{1,512})(?=@)")


# Every match of an anchor is a word of at least this length, or contains one of these signs.
MIN_ANCHOR = 16
SHORT_SIGNS = (
    b"envhist-key", b"eyJ", b"PRIVATE KEY", b"uthorization", b"UTHORIZATION", b"/api/webhooks/", b"://", b"AGE-", b"$",
    b"hooks.", b'"d"', b"-us",
)  # fmt: skip
