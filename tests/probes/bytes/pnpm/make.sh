# pnpm: each package once, below node_modules/.pnpm, as pnpm's own lock of what stands there names them.
need npm node
npm install --silent --no-audit --no-fund --prefix ../tool pnpm@${PNPM:-12} >&2
pnpm=../tool/node_modules/.bin/pnpm
echo '{"name": "work", "version": "1.0.0", "private": true}' > package.json
CI=1 $pnpm add --ignore-scripts is-odd@3.0.1 @sindresorhus/is@4.6.0 >&2
$pnpm --version > ../version
sed -n "/^packages:/,/^snapshots:/s/^  '\{0,1\}\/\{0,1\}\(@\{0,1\}[^@']*\)@\([^':]*\)'\{0,1\}:\$/node_modules\/\1 \2/p" node_modules/.pnpm/lock.yaml
