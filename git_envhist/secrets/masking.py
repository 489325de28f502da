"""Mask secrets in text written by people, agents and commands: intents, prompts, notes, command lines, outputs.

Unlike a file, such a text cannot be sealed, because lists show it. `mask_secrets` replaces the secret in each known
notation by `***` and keeps its name. It applies the token rules of `tokens.py` first, then the forms below: settings,
command options, headers, database statements, pipes into a login, plain sentences.

A form is compiled when one of its signs occurs in a text. Each repetition is bounded, which bounds the time per text.
"""

from __future__ import annotations

import os
import re
from functools import cache

from git_envhist.printable_text import encode_text
from git_envhist.secrets.tokens import MASK, mask_tokens

ROUNDS = 8
"""A command may contain several secrets of one form; each round masks one per command."""
TITLE = 72

# Variables, templates and masks are not secrets.
REAL = rb"(?!\\?[\"']?(?:\$[A-Za-z_{(]|%[A-Z_]+%|\{\{|<[A-Za-z]|\*\*\*))(?!'?\*\*\*)"
VALUE = REAL + rb"(?:\\?\"(?:[^\"\\]|\\[^\"]){1,4096}\\?\"|'[^']{1,4096}'|[^\s\"'`;&|<>,)\]}\\]{1,4096})"
# In a sentence: quoted, or with a digit, a sign or an inner capital letter.
DISTINCTIVE = (
    REAL
    + rb"(?:\"[^\"\n]{3,256}\"|'[^'\n]{3,256}'|`[^`\n]{3,256}`"
    + rb"|(?=[^\s,;]{0,64}(?:[0-9!@#$%^&*+=/?~]|[a-z][A-Z]|_\w))[^\s\"'`,;)\]]{4,256})"
)
NUMBER = rb"(?![0-9.]{1,6}(?![^\s,;&)\]}]))"
COMMAND = rb"[^|;&\n]{0,400}?"
BEFORE = rb"(?<![\w.-])"

# Short words occur within others (`bypass`, `config`), so they must begin a name or a part of one, or follow a known
# prefix.
PART = rb"(?:(?<![a-z])|(?-i:(?<=[a-z])(?=[A-Z]))|(?<=db)|(?<=pg)|(?<=my)|(?<=user)|(?<=root)|(?<=admin)|(?<=smtp))"
SHORT = PART + rb"(?:pass|pw|cookie|dsn|bearer|sig|sas)"
SURE = rb"(?:pass(?:word|wd|phrase|code|wort)|kennwort|pwd)"
WORD = (
    rb"(?:" + SURE + rb"|secret|token|credentials?"
    rb"|(?:api|access|secret|private|auth|account|encryption|signing|master|service|session|app)[_.-]?key"
    rb"|connection[_-]?string|webhook[_-]?url|" + SHORT + rb")"
)
NAME = BEFORE + rb"[\w./:-]{0,80}?" + WORD + rb"(?:[_-]?(?:base|value|hash|old|new|key|id|v?\d{1,2}))?"
ABOUT = rb"(?:[ \t]{1,4}(?:for|of|to|on|in|f\xc3\xbcr|von)(?:[ \t]{1,4}[^\s:]{1,60}){1,5}?)?"
SURELY = rb"(?:" + SURE + rb"|pass)"
OPTION = (
    rb"--?(?:[a-z0-9]+[_-]){0,4}(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|(?:api|access"
    rb"|secret|account|auth|master)[_-]?key|client[_-]?secret|storepass|keypass|oauth2-bearer"
    rb"|authtoken)"
)
HEADER = (
    rb"(?:proxy-)?authorization|(?:set-)?cookie2?"
    rb"|x-[\w-]{0,40}(?:api|auth|access|subscription|private|vault|secret|csrf|xsrf|security|session)[\w-]{0,40}"
    rb"|[\w-]{0,40}(?:-key|-token|-secret|-signature)"
)

Form = tuple[tuple[bytes, ...], bytes, bytes]
"""Signs of which one must occur, the readable part before the secret, the secret."""


def _form(signs: tuple[bytes, ...], before: bytes, secret: bytes = VALUE) -> Form:
    return signs, before, secret


PASS = (b"pass", b"pwd", b"pw", b"kennwort")
NAMES = (*PASS, *b"secret token key credential cookie dsn bearer connection webhook sig sas".split())
FORMS: tuple[Form, ...] = (
    # `DB_PASS=X`, `--password=X`, `"password": "X"`, `password = X`, `password => X`, `?access_token=X`
    _form(NAMES, NAME + rb"\\?[\"']?\]?[ \t]{0,4}(?:=>?|:=)[ \t]{0,4}", NUMBER + VALUE),
    _form(NAMES, NAME + rb"\\?[\"'][ \t]{0,4}:\s{0,4}", NUMBER + VALUE),
    _form((b"_key",), BEFORE + rb"[A-Za-z0-9_]{1,80}_key[ \t]{0,4}=[ \t]{0,4}"),
    _form((b"key=",), rb"[?&]key="),
    _form(
        PASS,
        BEFORE + rb"[\w.-]{0,80}?(?:" + SURE + rb"|" + PART + rb"pass)" + rb":[ \t]{0,4}",
        NUMBER + VALUE,
    ),
    _form(NAMES, NAME + rb":[ \t]{0,4}", DISTINCTIVE),
    # Options of commands.
    _form(NAMES, rb"(?<!\S)" + OPTION + rb"(?:=|[ \t]{1,4})", NUMBER + rb"(?![-/~.])" + VALUE),
    _form(
        (b"-u", b"user"),
        rb"(?<!\S)(?:-[uU]|--(?:proxy-)?user)(?:=|[ \t]{0,4})[\"']?(?!\d+:\d)[^\s:\"'/]{1,100}:",
        rb"(?!//)" + REAL + rb"[^\s\"']{1,4096}",
    ),
    _form(
        (b"%",),
        rb"(?<!\S)(?:-[uU]|--user)(?:=|[ \t]{0,4})[\"']?[^\s%\"'/:]{1,100}%",
        REAL + rb"[^\s\"']{1,4096}",
    ),
    _form((b"login",), rb"\blogin\b" + COMMAND + rb"[ \t]-p(?:=|[ \t]{0,4})"),
    _form(
        (b"login",),
        (
            rb"\b(?:vault|doppler|cachix|infisical|flyctl|op)[ \t]{1,4}"
            rb"(?:auth[ \t]{1,4})?login[ \t]{1,4}"
        ),
        rb"(?!-)" + VALUE,
    ),
    _form(
        (b"mysql", b"mariadb", b"mycli"),
        rb"\b(?:mysql\w{0,12}|mariadb[\w-]{0,12}|mycli)\b" + COMMAND + rb"[ \t]-p",
        rb"(?!\s)" + VALUE,
    ),
    _form(
        (b"sshpass", b"mongo", b"twine", b"rabbitmqadmin", b"cqlsh", b"useradd", b"usermod"),
        rb"\b(?:sshpass|mongo\w{0,12}|twine|rabbitmqadmin|cqlsh|useradd|usermod)\b"
        + COMMAND
        + rb"[ \t](?-i:-p)[ \t]{0,4}",
    ),
    _form(
        (b"mosquitto_", b"ssh-keygen"),
        rb"\b(?:mosquitto_\w{2,8}|ssh-keygen)\b" + COMMAND + rb"[ \t](?-i:-[NP])[ \t]{1,4}",
    ),
    _form((b"snmp",), rb"\bsnmp\w{2,12}\b" + COMMAND + rb"[ \t](?-i:-[AX])[ \t]{1,4}"),
    _form((b"wpa_passphrase",), rb"\bwpa_passphrase[ \t]{1,4}\S{1,100}[ \t]{1,4}"),
    # HTTPie and xh: `http -a user:X`
    _form(
        (b"http ", b"https ", b"xh ", b"xhs "),
        rb"\b(?:https?|xhs?)[ \t]"
        + COMMAND
        + rb"(?<!\S)(?:-a|--auth)(?:=|[ \t]{0,4})[\"']?[^\s:\"'/]{1,100}:",
        REAL + rb"[^\s\"']{1,4096}",
    ),
    _form(
        (b"zip", b"7z", b"sqlcmd", b"bcp", b"ipmitool", b"rar"),
        rb"\b(?:un)?(?:zip|7za?|7z|sqlcmd|bcp|ipmitool|rar)\b" + COMMAND + rb"[ \t]-[pP][ \t]{0,4}",
    ),
    _form((b"redis-cli",), rb"\bredis-cli\b" + COMMAND + rb"[ \t]-a[ \t]{0,4}"),
    _form((b"ldap",), rb"\bldap\w{2,12}\b" + COMMAND + rb"[ \t]-w[ \t]{0,4}"),
    _form((b"openssl",), rb"\bopenssl\b" + COMMAND + rb"[ \t]-[kK][ \t]{1,4}"),
    _form((b"pass:",), rb"\bpass:", REAL + rb"[^\s\"']{1,4096}"),
    _form(
        (b"htpasswd",),
        rb"\bhtpasswd[ \t]" + COMMAND + rb"-\w{0,6}b\w{0,6}[ \t]{1,4}(?:\S{1,200}[ \t]{1,4}){1,2}?",
        rb"(?!-)" + VALUE + rb"(?=[ \t]{0,4}(?:$|[\n|;&\"']))",
    ),
    _form(
        (b"add_user", b"change_password", b"net user"),
        rb"\b(?:add_user|change_password|net[ \t]user)[ \t]{1,4}\S{1,100}[ \t]{1,4}",
        rb"(?!/)" + VALUE,
    ),
    _form(
        (b"config", b"configure"),
        rb"\bconfig(?:ure)?[ \t]{1,4}set[ \t]{1,4}\S{0,200}?" + WORD + rb"[\"']?[ \t]{1,4}",
    ),
    _form((b"setx",), rb"\bsetx[ \t]{1,4}[\"']?\w{0,80}(?:" + WORD + rb"|_key)[\"']?[ \t]{1,4}"),
    _form(
        (b"from-literal",),
        rb"--from-literal(?:=|[ \t]{1,4})[\"']?[\w.-]{1,100}=",
        REAL + rb"[^\s\"']{1,4096}",
    ),
    _form(
        (b"config:set", b"secrets set", b"user-secrets set", b"secret set"),
        rb"\b(?:config:set|(?:user-)?secrets?[ \t]{1,4}set)[ \t]{1,4}(?:[^\s|;&]{1,200}[ \t]{1,4}){0,9}?"
        rb"[\"']?[\w.:-]{1,100}[\"']?(?:=|[ \t]{1,4}(?![-\w]{1,100}=))",
        rb"(?!-)" + VALUE + rb"(?<!\*\*\*)",
    ),
    _form(
        (b"/user:",),
        rb"/user:\S{1,100}[ \t]{1,4}",
        rb"(?!/)" + VALUE,
    ),
    _form((b"-x", b"machine", b"login"), rb"\blogin[ \t]{1,4}\S{1,200}\s{1,4}password[ \t]{1,4}"),
    # `echo X | sudo -S`, `docker login --password-stdin <<< X`
    _form(
        (b"|",),
        rb"\b(?:echo|printf)[ \t]{1,4}(?:-\w{1,3}[ \t]{1,4}|[\"']?%s(?:\\n)?[\"']?[ \t]{1,4}){0,2}",
        VALUE
        + rb"(?=[ \t]{0,4}\|[ \t]{0,4}"
        + COMMAND
        + rb"(?:-S\b|\blogin\b|with-token|stdin|passw|kinit|passphrase|cryptsetup|secret))",
    ),
    _form(
        (b"<<<",),
        rb"(?:-S|login|with-token|stdin|passw\w{0,8}|kinit|passphrase|cryptsetup|secret)"
        + COMMAND
        + rb"<<<[ \t]{0,4}",
    ),
    # Headers.
    _form(
        (b"x-", b"-key:", b"-token:", b"-secret:", b"-signature:", b"authorization", b"cookie"),
        rb"(?<![\w-])(?:"
        + HEADER
        + (
            rb"):[ \t]{0,4}(?:(?:basic|bearer|token|digest|apikey|api-key|negotiate"
            rb"|aws4-hmac-sha256)[ \t]{1,4})?"
        ),
        REAL + rb"(?=[^\s\"'\n]{0,4000}(?:[0-9=+/_-]|[a-z][A-Z]))[^\"'\n]{4,4096}",
    ),
    _form(
        (b"authorization", b"cookie"),
        (
            rb"(?<![\w-])(?:(?:proxy-)?authorization|(?:set-)?cookie2?):[ \t]{0,4}(?:(?:basic|bearer"
            rb"|token|digest|apikey)[ \t]{1,4})?"
        ),
        REAL + rb"[^\"'\n]{2,4096}",
    ),
    _form(
        (b"bearer ",),
        rb"\bbearer[ \t]{1,4}",
        REAL + rb"(?=[^\s]{0,64}(?:[0-9._-]|[a-z][A-Z]))[\w.~+/=-]{6,4096}",
    ),
    _form(
        (b"-b", b"--cookie"),
        rb"(?<!\S)(?:-b|--cookie)(?:=|[ \t]{1,4})[\"']?[\w.-]{1,80}=",
        REAL + rb"[^\s\"']{1,4096}",
    ),
    # Statements of databases, XML.
    _form(
        (b"identified", b"password"),
        (
            rb"\b(?:identified[ \t]{1,4}(?:with[ \t]{1,4}\S{1,60}[ \t]{1,4})?by|password)[ \t]{1,4}"
            rb"(?:password[ \t]{1,4})?"
        ),
        rb"'[^'\n]{1,4096}'",
    ),
    _form((b"pragma",), rb"\bpragma[ \t]{1,4}(?:re)?key[ \t]{0,4}=[ \t]{0,4}"),
    _form((b"</",), rb"<[\w:.-]{0,60}" + WORD + rb"[\w:.-]{0,20}>", REAL + rb"[^<\n]{1,4096}"),
    # A token instead of a user: `https://TOKEN@host`.
    _form((b"://",), rb"://", rb"(?=[^\s/:@]{0,200}[0-9])[A-Za-z0-9_-]{16,400}(?=@)"),
    # Sentences: `the password for admin is X`, `password hunter2`, `das Passwort lautet X`, `login: admin / X`
    _form(
        PASS,
        rb"\b"
        + SURELY
        + ABOUT
        + rb"[ \t]{1,4}(?:is|was|ist|war|lautet|being)\b(?:[ \t]now)?[ \t]{0,4}:?[ \t]{0,4}",
        (
            rb"(?!(?i:required|missing|wrong|invalid|empty|not|too|incorrect|correct|set|stored|hashed"
            rb"|sent|the|a|an|now|never|always|null|none|no|still|also|only|in|on|at|what|where|shown"
            rb"|asked|checked|used|different|same|kept|reset|changed|masked|sealed|expired|ok|okay"
            rb"|good|bad|weak|strong|short|long|unknown|optional|mandatory|needed|falsch|nicht|leer"
            rb"|zu)\b)"
        )
        + VALUE,
    ),
    _form(
        (b"token", b"secret", b"key", b"credential", b"pin", b"login", *PASS),
        rb"\b(?:token|secret|(?:[a-z]{2,12}[ _-]?)?key|credentials?|pin|login|pw|"
        + SURE
        + rb")"
        + ABOUT
        + rb"(?:[ \t]{1,4}(?:is|are|was|ist|sind|lautet|=|:)|:)?[ \t]{1,4}",
        DISTINCTIVE,
    ),
    _form(
        (b"/", b"login", b"credential"),
        (
            rb"\b(?:login|log[ \t]in|credentials?|sign[ \t]in)\b[^\n/]{0,40}?\b[\w.@-]{1,60}[ \t]{1,4}"
            rb"/[ \t]{1,4}"
        ),
        DISTINCTIVE,
    ),
    _form(
        (
            b"contrase",
            b"mot de passe",
            b"wachtwoord",
            b"has\xc5\x82o",
            b"\xe5\xaf\x86\xe7\xa0\x81",
            b"\xe3\x83\x91\xe3\x82\xb9\xe3\x83\xaf\xe3\x83\xbc\xe3\x83\x89",
        ),
        (
            rb"(?:contrase\xc3\xb1a|mot de passe|wachtwoord|has\xc5\x82o|\xe5\xaf\x86\xe7\xa0\x81"
            rb"|\xe3\x83\x91\xe3\x82\xb9\xe3\x83\xaf\xe3\x83\xbc\xe3\x83\x89)[ \t]{0,4}(?:es|est|is|to"
            rb"|:|=|\xe6\x98\xaf|\xef\xbc\x9a|\xe3\x81\xaf)?[ \t]{0,4}"
        ),
    ),
)


def mask_secrets(text: bytes) -> bytes:
    """Return the text with `***` for every secret in a known notation."""
    masked = mask_tokens(text)
    lowered = masked.lower()
    forms = [number for number, (signs, _, _) in enumerate(FORMS) if any(sign in lowered for sign in signs)]
    for _ in range(ROUNDS if forms else 0):
        before = masked
        for number in forms:
            masked = _compiled(number).sub(_keep_before, masked)
        if masked == before:
            break
    return masked


def mask_text(text: str) -> str:
    """Do the same for a string; bytes that are not UTF-8 are preserved."""
    return os.fsdecode(mask_secrets(encode_text(text)))


def mask_pair(name: str, value: str) -> tuple[str, str]:
    """Return a name and its value, masked as a setting."""
    name = mask_text(name)
    return name, mask_text(f"{name}={value}").removeprefix(f"{name}=")


def title_of(prompt: str) -> str:
    """Return a short masked title of a prompt: its first line, cut between words."""
    # Mask before cutting: half of a secret is not recognized.
    lines = (" ".join(line.split()) for line in mask_text(prompt).splitlines())
    first = next((line for line in lines if line), "")
    if len(first) <= TITLE:
        return first
    head, space, _ = first[: TITLE - 1].rpartition(" ")
    return (head if space and len(head) > TITLE // 2 else first[: TITLE - 1]) + "…"


@cache
def _compiled(number: int) -> re.Pattern[bytes]:
    _, before, secret = FORMS[number]
    # Case is ignored in the name of a secret, and significant in the secret.
    return re.compile(b"((?i:" + before + b"))" + secret)


def _keep_before(match: re.Match[bytes]) -> bytes:
    return bytes(match[1]) + MASK
