"""The mask for text of people, agents and commands: it hides every known notation of a secret, and no ordinary text."""

from __future__ import annotations

import time

import pytest

from git_envhist.secrets.masking import TITLE, mask_pair, mask_secrets, mask_text, title_of

SECRET, WORD = "Zx9secretQ", "hunter"

WRITTEN = r"""
docker login -u me -p {X} registry.example.com
curl -u admin:{X} https://h/x
curl --user admin:{X} https://h/x
mysql -uroot -p{X} shop
mysqldump -h db -u root -p{X} shop > x
DB_PASS={X} ./run
PGPASSWORD={X} psql -h db
export TOKEN={X}
MYSQL_PWD={X} mysql
curl -H "X-Api-Key: {X}" https://h
curl -H 'Cookie: session={X}; a=b' https://h
curl -b "session={X}" https://h
curl -H "Authorization: Basic {X}" https://h
curl -H "Authorization: Bearer {X}" https://h
Authorization: {X}
tool --password {X} go
tool --password={X} go
tool --token {X}
tool --api-key {X}
tool --secret-key '{X}'
sshpass -p {X} ssh h
sshpass -p{X} ssh h
redis://:{X}@cache:6379/0
https://u:{X}@host/x
https://{X}tokentoken12@github.com/o/r
{"user": "a", "password": "{X}"}
{\"password\": \"{X}\"}
aws_secret_access_key = {X}
aws configure set aws_secret_access_key {X}
DefaultEndpointsProtocol=https;AccountName=a;AccountKey={X};EndpointSuffix=core
Server=db;User Id=sa;Password={X};
openssl rsa -in k.pem -passin pass:{X}
openssl enc -aes-256-cbc -k {X} -in f
htpasswd -b .htpasswd me {X}
htpasswd -cbB f me {X}
psql postgres://me:{X}@db/shop
kubectl create secret generic s --from-literal=k={X}
kubectl create secret generic s --from-literal k={X}
echo {X} | gh auth login --with-token
gh auth login --with-token <<< {X}
echo "{X}" | docker login --password-stdin -u me
echo '{X}' | sudo -S apt update
npm config set //registry.npmjs.org/:_authToken {X}
//registry.npmjs.org/:_authToken={X}
setx API_TOKEN "{X}"
the password is {X}
The password for the admin account is {X}, use it
use password {X} to log in
my token is {X}
api key: {X}
password: {X}
pw: {X}
Passwort: {X}
das Passwort lautet {X}
log in as admin / {X}
username: admin, password: {X}
CREATE USER a WITH PASSWORD '{X}'
CREATE USER a IDENTIFIED BY '{X}'
redis-cli -h c -a {X} ping
ldapsearch -x -D cn=a -w {X} -b dc=x
zip -P {X} a.zip f
7z a -p{X} a.7z f
smbclient //h/s -U me%{X}
mongosh -u me -p {X} mongodb://h
gpg --batch --passphrase {X} -c f
vault login {X}
vault kv put secret/app password={X}
heroku config:set SECRET_KEY_BASE={X}
https://h/x?api_key={X}&b=1
https://h/x?access_token={X}
https://h/x?sv=1&sig={X}
<password>{X}</password>
machine h login me password {X}
wget --http-user=me --http-password={X} https://h
twine upload -u me -p {X} dist/*
helm registry login -u me -p {X} h
az login -u me -p {X}
keytool -storepass {X} -list
rabbitmqctl add_user me {X}
net user me {X} /add
net use x: /user:me {X}
heroku config:set KEY={X}
heroku config:set -a app KEY={X}
fly secrets set DB_URL={X}
dotnet user-secrets set "Smtp:Word" "{X}"
pw {X} for root
mein Passwort ist {X}
STRIPE_KEY={X} node x
client_secret: {X}
GITHUB_TOKEN="{X}" gh pr list
contraseña: {X}
docker run -e POSTGRES_PASSWORD={X} postgres
PRIVATE-TOKEN: {X}
X-Auth-Token: {X}
passphrase "{X}"
DBPASS={X} ./run
dbPassword={X}
{"userPassword": "{X}", "secretAccessKey": "{X}"}
githubToken: {X}
$env:TOKEN = "{X}"
AWS_SESSION_TOKEN={X}
Authorization: token {X}
ansible-playbook -e ansible_password={X} site.yml
psql "host=h user=me password={X}"
jdbc:mysql://h/db?user=me&password={X}
Pwd={X};Server=db
git clone https://oauth2:{X}@gitlab.example.com/o/r
curl -d 'user=a&password={X}' https://h
http -a a:{X} https://h
https --auth=a:{X} h
xh -a a:{X} h
mosquitto_pub -h h -u a -P {X} -t t
cqlsh -u a -p {X}
ssh-keygen -N {X} -f k
ssh-keygen -p -P {X} -f k
snmpwalk -v3 -a SHA -A {X} h
snmpwalk -v3 -x AES -X {X} h
useradd -m -p {X} bob
wpa_passphrase network {X}
""".strip().splitlines()
"""Notations of a secret with digits or capital letters."""

PLAINLY = """
password is X
PASSWORD=X
mysql -pX
docker login -p X
tool --password X
password: X
curl -u a:X https://h
sshpass -p X ssh h
the password is X
PGPASSWORD=X psql
echo X | sudo -S true
""".strip().splitlines()
"""Notations in which even an ordinary word is hidden."""

ORDINARY = """
before auth refactor
fix: parse keys of the token table
token: handle expiry
tests: pass=12 fail=3
the token is invalid
password is required
add a password reset page
docker run -p 8080:80 -u 1000:1000 image
max_tokens=4096
rename the key of the map to name
curl -u "$USER:$PASS" https://h
PASSWORD=$DB_PASSWORD ./x
make the greeting friendlier
commit: secret names by table
mkdir -p src/lib && cp -p a b
npm test -- --token-file ./x
ssh -p 2222 host
the private key is in ~/.ssh
Co-Authored-By: A <a@b.c>
fix the login form / sign in page
see https://github.com/o/r/issues/12
note: at 10:27 it failed
git envlog capture -m "working version"
update cookie banner
keyboard: layout v2
rotate the api key
Signed-off-by: A B <a@b.c>
session: 5 of 10
key: value
bypass=none config=dev compass: north
the authors: A and B
ssh-keygen -N '' -f k
http GET example.org name=a
snmpd is off
""".strip().splitlines()


@pytest.mark.parametrize("text", WRITTEN)
def test_mask_hides_a_secret_in_every_notation(text: str) -> None:
    masked = mask_text(text.replace("{X}", SECRET))
    assert SECRET not in masked
    assert "***" in masked
    assert mask_text(masked) == masked


@pytest.mark.parametrize("text", PLAINLY)
def test_mask_hides_an_ordinary_word_in_the_position_of_a_password(text: str) -> None:
    assert WORD not in mask_text(text.replace("X", WORD))


@pytest.mark.parametrize("text", ORDINARY)
def test_mask_leaves_ordinary_text_alone(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "mysql ",
        "password ",
        "x: ",
        "echo ",
        "login ",
        '"',
        'password: "',
        "a:",
        "key=",
        "-u ",
        "a-",
        "password for ",
    ],
)
def test_mask_takes_bounded_time_for_any_text(part: str) -> None:
    text = (part * 65_536)[:65_536].encode()
    mask_secrets(text)
    started = time.process_time()
    mask_secrets(text)
    assert time.process_time() - started < 5


def test_mask_hides_a_value_with_a_secret_name() -> None:
    assert mask_pair("DB_PASSWORD", WORD) == ("DB_PASSWORD", "***")
    assert mask_pair("ticket", "PROJ-12") == ("ticket", "PROJ-12")


def test_title_of_a_prompt_is_short_and_masked_before_it_is_cut() -> None:
    long = (
        "please fix the login of the shop, and "
        "do not forget that my github token is ghp_" + "x1Y2" * 9 + " ok"
    )
    title = title_of(f"\n\n  {long}\nsecond line")
    assert len(title) <= TITLE
    assert "ghp_x1" not in title
    assert title.startswith("please fix the login of the shop")
    assert title.endswith("…")
    assert title_of("short  one\nmore") == "short one"
    assert title_of(" \n ") == ""
