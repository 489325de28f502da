# npm: what `npm install` leaves, as `npm ls` lists it.
need npm node
echo '{"name": "work", "version": "1.0.0", "private": true}' > package.json
npm install --no-audit --no-fund --ignore-scripts is-odd@3.0.1 @sindresorhus/is@4.6.0 >&2
npm --version > ../version
npm ls --all --parseable --long | sed -n "s|^$PWD/\(.*\):.*@\([^@:]*\)\$|\1 \2|p"
