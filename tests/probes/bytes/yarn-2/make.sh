# yarn 2, without a node_modules: a list in .pnp.js.
need npm node
npm install --silent --no-audit --no-fund --prefix ../tool @yarnpkg/cli-dist@2 >&2
yarn() { node ../tool/node_modules/@yarnpkg/cli-dist/bin/yarn.js "$@"; }
echo '{"name": "work", "version": "1.0.0", "private": true}' > package.json
printf 'nodeLinker: pnp\nenableTelemetry: false\n' > .yarnrc.yml
touch yarn.lock
yarn add is-odd@3.0.1 @sindresorhus/is@4.6.0 >&2
yarn --version > ../version
yarn info --all --recursive --json | sed -n 's/^{"value":"\(@\{0,1\}[^@"]*\)@npm:\([^"]*\)".*/.pnp.js\/\1 \2/p' | sed '/is-number/s/$/ auto/'
