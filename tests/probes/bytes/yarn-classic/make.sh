# yarn 1: node_modules as npm lays it out.
need npm node
npm install --silent --no-audit --no-fund --ignore-scripts --prefix ../tool yarn@1.22.22 >&2
echo '{"name": "work", "version": "1.0.0", "private": true}' > package.json
node ../tool/node_modules/yarn/bin/yarn.js add --ignore-scripts --no-progress is-odd@3.0.1 @sindresorhus/is@4.6.0 >&2
node ../tool/node_modules/yarn/bin/yarn.js --version > ../version
node ../tool/node_modules/yarn/bin/yarn.js list --no-progress --json |
    sed 's/"name":/\n/g' | sed -n 's/^"\(@\{0,1\}[^@"]*\)@\([0-9][^"]*\)".*/node_modules\/\1 \2/p'
