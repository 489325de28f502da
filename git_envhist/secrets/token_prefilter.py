"""Find which kinds of tokens may be in a file, with a few passes over its bytes.

Most files contain none, and matching 158 forms takes longer than reading them. Most prefixes end in `_`, `-` or `.`:
one expression for each of these characters finds it with memchr and then checks for a prefix before it. Other forms
have a sign of their own. Forms with a long run of letters and digits are searched only in files that have such a run,
which two calls in C find.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

URL_PASSWORD = "url_password"
Search = Callable[[bytes], "re.Match[bytes] | None"]
Signs = dict[int, dict[bytes, tuple[str, ...]]]
"""Kinds by the length and the bytes of their signs."""

# kind -> the last part of each of its prefixes, up to its final character.
SIGNS: dict[str, str] = {
    "github": "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
    "gitlab": "glpat- gloas- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- glwt- glsoat- glffct-",
    "sourcegraph": "sgp_ sgs_ sgd_",
    "npm": "npm_",
    "pypi": "pypi-",
    "rubygems": "rubygems_",
    "clojars": "CLOJARS_",
    "packagist": "_ack_ _out_ _org_ _upd_ _mig_",
    "docker": "dckr_pat_ dckr_oat_",
    "circleci": "CCIPAT_ CCIPRJ_",
    "buildkite": "bkua_ bkat_ bkct_ bkpi_ bkps_",
    "sonar": "sqp_ squ_ sqa_",
    "postman": "PMAK-",
    "pulumi": "pul-",
    "doppler": "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.",
    "infracost": "ico-",
    "prefect": "pnu_ pnb_",
    "dbt": "dbtc_ dbtu_",
    "readme": "rdme_",
    "aws_bedrock": "bedrock-api-key-",
    "amazon_mws": "amzn.mws.",
    "google_client": "GOCSPX-",
    "google_access": "ya29.",
    "digitalocean": "dop_v1_ doo_v1_ dor_v1_ dot_v1_",
    "cloudflare": "cfk_ cfut_ cfat_",
    "cloudflare_ca": "v1.0-",
    "fly": "fm1_ fm2_ fo1_",
    "heroku": "HRKU-",
    "netlify": "nfp_ nfc_ nfo_ nfu_",
    "vercel_blob": "blob_rw_",
    "scalingo": "tk-us-",
    "render": "rnd_",
    "planetscale": "pscale_tkn_ pscale_pw_ pscale_oauth_",
    "supabase": "sbp_ sb_secret_",
    "neon": "napi_",
    "xata": "xau_",
    "mongodb_atlas": "mdb_sa_sk_",
    "terraform": ".atlasv1.",
    "vault": "hvs. hvb. hvr.",
    "harness": "pat. sat.",
    "defined": "dnkey-",
    "octopus": "API-",
    "anthropic": "sk-ant-",
    "openrouter": "sk-or-",
    "openai": "sk-proj- sk-svcacct- sk-admin- sk-None-",
    "langfuse": "sk-lf-",
    "sk": "sk-",
    "langsmith": "lsv2_pt_ lsv2_sk_",
    "huggingface": "hf_ api_org_",
    "groq": "gsk_",
    "xai": "xai-",
    "perplexity": "pplx-",
    "replicate": "r8_",
    "nvidia": "nvapi-",
    "fireworks": "fw_",
    "cerebras": "csk-",
    "elevenlabs": "sk_",
    "pinecone": "pcsk_",
    "jina": "jina_",
    "tavily": "tvly-",
    "apify": "apify_api_",
    "e2b": "e2b_",
    "roboflow": "rf_",
    "together": "tgp_v1_",
    "logfire": "_v1_ _v2_ _v3_ _v4_ _v0_ _v5_ _v6_ _v7_ _v8_ _v9_",
    "slack": "xoxa- xoxb- xoxc- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-",
    "sendgrid": "SG.",
    "mailgun": "key-",
    "brevo": "xkeysib- xsmtpsib-",
    "resend": "re_",
    "stripe": "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_",
    "stripe_webhook": "whsec_",
    "square": "sq0atp- sq0csp-",
    "plaid": "access-sandbox- access-development- access-production-",
    "flutterwave": "FLWSECK- FLWSECK_TEST-",
    "lob": "live_ test_",
    "duffel": "duffel_test_ duffel_live_",
    "shippo": "shippo_live_ shippo_test_",
    "shopify": "shpat_ shpca_ shppa_ shpss_ shpua_ shptka_",
    "matrix": "syt_",
    "linear": "lin_api_ lin_oauth_",
    "notion": "ntn_ secret_",
    "hubspot": "pat-na1- pat-na2- pat-na3- pat-eu1- pat-ap1-",
    "typeform": "tfp_",
    "figma": "figd_ figo_",
    "contentful": "CFPAT-",
    "frameio": "fio-u-",
    "adobe": "p8e-",
    "adafruit": "aio_",
    "wakatime": "waka_",
    "dropbox": "sl. sl.u. sl.B.",
    "grafana": "glsa_ glc_",
    "sentry": "sntrys_ sntryu_",
    "newrelic": "NRAK- NRRA- NRII-",
    "honeycomb": "ik_",
    "posthog": "phx_",
    "launchdarkly": "sdk- api-",
    "stytch": "secret-live- secret-test-",
    "ory": "ory_pat_ ory_at_ ory_rt_ ory_st_ ory_ac_ ory_wak_",
    "settlemint": "sm_aat_ sm_pat_ sm_sat_",
    "tailscale": "tskey-auth- tskey-api- tskey-client- tskey-scim- tskey-webhook-",
}

# kind -> an expression that matches in every one of its tokens and begins with a rare character; a lookbehind checks
# the characters before it. Each distinct first character costs a pass over every file, so kinds share them.
ANCHORS: dict[str, bytes] = {
    "aws": rb"A[KSBC][IC]A[A-Z2-7]{16}",
    "google": rb"AIza[\w-]{28}",
    "atlassian": rb"AT(?:[AC]TT3|BB)[\w=-]{28}",
    "age": rb"AGE-(?:SECRET-KEY|PLUGIN-)",
    "google_refresh": rb"/(?<=1//)0[\w-]{28}",
    "envhist": rb"-(?<=envhist-)key(?:[- ][12]|-w[12])",
    "telegram": rb":AA[\w-]{32}",
    "azure": rb"=(?<=Key=)[A-Za-z0-9+/]{40}",
    "jwt": rb"J(?<=eyJ)[\w+/=-]{10}",
    "private_key": rb"PRIVATE KEY",
    "slack_webhook": rb"/(?:(?<=hooks\.slack\.com/)|(?<=hooks\.zapier\.com/))",
    "discord_webhook": rb"/api/webhooks/\d",
    "git_header": rb"z(?<=uthoriz)ation[\"']?[ \t]{0,4}[:=,]",
    "git_header_upper": rb"UTHORIZATION:",
    "asana": rb"/\d{10,20}(?:/\d+)?:[0-9a-f]{32}",
    "azure_client": rb"~(?<=Q~)[\w~.-]{31}",
    "azure_sas": rb"=(?<=sig=)[A-Za-z0-9%+/]{40}",
    "aws_bedrock": rb"ABSK[\w+/=]{60}",
    "aws_secret": rb"y(?<=ey)[\"']?[ \t]{0,4}[=:>]{1,2}[ \t]{0,4}[\"']?[A-Za-z0-9/+]{40}",
    "braintree": rb"\$(?<=access_token\$)[ps]\w{6}",
    "crypt": rb"\$(?:2[aby]|[56y]|argon2id?)\$",
    "discord": rb"\.[\w-]{6}\.[\w-]{27}",
    "firebase": rb":APA91b[\w-]{16}",
    "gitlab_runner": rb"GR1348941[\w-]{16}",
    "intercom": rb"G(?<=dG)9rOj[A-Za-z0-9+/=]{50}",
    "jwk": rb"\"d\"\s{0,4}:",
    "mailchimp": rb"-us\d",
    "onepassword_key": rb"A3-[A-Z0-9]{6}-[A-Z0-9]{6}",
    "openshift": rb"~(?<=sha256~)[\w-]{43}",
    "putty": rb"PuTTY-User-Key-File-",
    "square_access": rb"A(?<=EAAA)[\w-]{60}",
    "teams_webhook": rb"/(?<=webhook\.office\.com/)",
    "wireguard": rb"=[ \t]{0,4}[A-Za-z0-9+/]{43}=",
    "yandex": rb"AQVN[\w-]{34}",
    URL_PASSWORD: rb"://[^\s/:@?#\"'<>`\\]{0,256}:[^\s/?#\"'<>`\\]{1,512}@",
}
MORE = (
    ("slack", rb"-(?:(?<=xox[a-z]-)|(?<=xapp-))[\w.-]{8}"),
    ("sendgrid", rb"G(?<=SG)\.[\w-]{16}"),
    ("aws_secret", rb"Y(?<=EY)[\"']?[ \t]{0,4}[=:>]{1,2}[ \t]{0,4}[\"']?[A-Za-z0-9/+]{40}"),
    ("yandex", rb"YC(?:AJ|M)[\w-]{34}"),
)
"""Further anchors of kinds without a common literal."""
ALSO = {
    "azure": ("azure_shared",),
    "jwt": ("mapbox", "onepassword"),
    "slack_webhook": ("zapier",),
}
"""Other kinds that an anchor may indicate."""

# kind -> a literal in each of its tokens, in addition to a run of `RUN` letters and digits.
LITERALS: dict[str, bytes] = {
    "airtable": b"pat",
    "azure_devops": b"AZDO",
    "bip32": b"prv",
    "databricks": b"dapi",
    "dynatrace": b"dt0",
    "maxmind": b"_mmk",
    "nostr": b"nsec1",
    "rapidapi": b"jsn",
    "trello": b"ATTA",
    "crates": b"cio",
    "nuget": b"oy2",
    "alibaba": b"LTAI",
    "tencent": b"AKID",
    "twilio": b"SK",
    "facebook": b"EAA",
    "twitter": b"AAAAAAAAAAAAAAAAAAAA",
    "nkey": b"S",
    "stellar": b"S",
}
OTHER_LITERALS = {"artifactory": (b"AKCp", b"cmVmdGtuOj"), "easypost": (b"EZAK", b"EZTK")}
ANYWHERE = frozenset(
    (
        "private_key", "git_header", "git_header_upper", "crypt", "azure", "azure_sas", "azure_client", "openshift",
        "jwt", "putty", "envhist", "slack", "sendgrid", URL_PASSWORD,
    )
)  # fmt: skip
"""Anchors of tokens without a long run of token characters: searched in the whole file."""
AFTER_SIGN = {
    "lob": rb"[0-9a-f]{35}",
    "resend": rb"[A-Za-z0-9]{8}_[A-Za-z0-9]{20}",
    "elevenlabs": rb"[0-9a-f]{40}",
}
"""Expressions that must match after signs that also occur in ordinary names."""
DOTTED = {"planetscale": b"pscale_", "ory": b"ory_"}
"""Literals of tokens in which dots may leave no long run."""
RUN = 20
"""The number of consecutive characters that make a run."""
BEFORE, AFTER = 64, 8
"""Maximum distance of a sign, anchor or literal from a run, before and after it."""
_RUN = b"a" * RUN


def _run_table(others: bytes) -> bytes:
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" + others
    return bytes(97 if code in letters else 32 for code in range(256))


_ALNUM_RUNS = _run_table(b"")
_TOKEN_RUNS = _run_table(b"_-+/=%")


def possible_kinds(data: bytes) -> set[str]:
    """Return the kinds of tokens that may be in some bytes; all others are certainly absent."""
    found: set[str] = set()
    _search(_anchors(anywhere=True), data, found)
    found.update(kind for kind, literal in DOTTED.items() if literal in data)
    # About an eighth of the text of programs; the rest is not searched again.
    near = _near_runs(data, _TOKEN_RUNS)
    if not near:
        return found
    _search(_anchors(anywhere=False), near, found)
    for find_all, signs in _endings():
        for match in find_all(near):
            found.update(
                kind
                for kind in _kinds_before(near, match.end(), signs)
                if kind not in AFTER_SIGN or _after_sign(kind)(near, match.end()) is not None
            )
    compact = _near_runs(near, _ALNUM_RUNS)
    if compact:
        found.update(kind for kind, literal in LITERALS.items() if literal in compact)
        found.update(kind for kind, some in OTHER_LITERALS.items() if any(one in compact for one in some))
    return found


def _search(anchors: tuple[tuple[Search, tuple[str, ...]], ...], data: bytes, found: set[str]) -> None:
    for search, kinds in anchors:
        if search(data) is not None:
            found.update(kinds)


def _near_runs(data: bytes, table: bytes) -> bytes:
    """Return the long runs of a table's letters, with their surroundings."""
    runs = data.translate(table)
    parts: list[bytes] = []
    done, at = 0, runs.find(_RUN)
    while at >= 0:
        end = runs.find(b" ", at)
        end = len(runs) if end < 0 else end
        # Overlapping surroundings become one part: an anchor may extend across them.
        start = at - BEFORE
        if parts and start <= done:
            parts[-1] += data[done : end + AFTER]
        else:
            parts.append(data[max(0, start) : end + AFTER])
        done = end + AFTER
        at = runs.find(_RUN, end)
    # An anchor lies within one part, never across two.
    return b"\n".join(parts)


def _kinds_before(data: bytes, end: int, signs: Signs) -> Iterator[str]:
    for length, kinds in signs.items():
        yield from kinds.get(data[max(0, end - length) : end], ())


def _by_sign(table: dict[str, str]) -> dict[bytes, tuple[str, ...]]:
    found: dict[bytes, list[str]] = {}
    for kind, signs in table.items():
        for sign in signs.split():
            found.setdefault(sign.encode(), []).append(kind)
    return {sign: tuple(kinds) for sign, kinds in found.items()}


# Compiled on demand: most captures read no file.
@cache
def _anchors(*, anywhere: bool) -> tuple[tuple[Search, tuple[str, ...]], ...]:
    """Return one expression per first letter with the kinds it may indicate; the engine finds that letter first."""
    groups: dict[bytes, list[tuple[str, bytes]]] = {}
    for kind, anchor in (*ANCHORS.items(), *MORE):
        if (kind in ANYWHERE) != anywhere:
            continue
        length = 2 if anchor[:1] == b"\\" else 1
        groups.setdefault(anchor[:length], []).append((kind, anchor[length:]))
    return tuple(
        (
            re.compile(first + b"(?:" + b"|".join(rest for _, rest in some) + b")").search,
            tuple(kind for name, _ in some for kind in (name, *ALSO.get(name, ()))),
        )
        for first, some in groups.items()
    )


@cache
def _after_sign(kind: str) -> Callable[[bytes, int], re.Match[bytes] | None]:
    return re.compile(AFTER_SIGN[kind]).match


@cache
def _endings() -> tuple[tuple[Callable[[bytes], Iterator[re.Match[bytes]]], Signs], ...]:
    groups: dict[bytes, dict[bytes, tuple[str, ...]]] = {}
    for sign, kinds in _by_sign(SIGNS).items():
        groups.setdefault(sign[-1:], {})[sign] = kinds
    return tuple(
        (re.compile(_ending(last, list(signs))).finditer, _by_length(signs)) for last, signs in groups.items()
    )


def _by_length(signs: dict[bytes, tuple[str, ...]]) -> Signs:
    found: Signs = {}
    for sign, kinds in signs.items():
        found.setdefault(len(sign), {})[sign] = kinds
    return found


def _ending(last: bytes, signs: list[bytes]) -> bytes:
    """Return an expression that matches a character after one of the signs, checking the character before it first."""
    before: dict[bytes, list[bytes]] = {}
    for sign in signs:
        before.setdefault(sign[-2:-1], []).append(sign)
    groups = (
        b"(?<="
        + re.escape(char + last)
        + b")(?:"
        + b"|".join(b"(?<=" + re.escape(sign) + b")" for sign in some)
        + b")"
        for char, some in before.items()
    )
    return re.escape(last) + rb"(?=[\w+/=.%-]{16})(?:" + b"|".join(groups) + b")"
