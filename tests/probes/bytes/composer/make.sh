# composer: two packages from git, one of them a branch, as `composer show` says.
need composer php git
export COMPOSER_HOME=$PWD/../home COMPOSER_ALLOW_SUPERUSER=1
for name in small branch; do
    mkdir -p ../src/$name
    echo '{"name": "some-vendor/'$name'"}' > ../src/$name/composer.json
    git -C ../src/$name init -q -b main
    git -C ../src/$name add .
    git -C ../src/$name -c user.name=x -c user.email=x@example.com commit -q -m x
done
git -C ../src/small tag v2.1.0
src=$(cd ../src && pwd)
cat > composer.json <<J
{"repositories": [{"packagist.org": false}, {"type": "vcs", "url": "$src/small"}, {"type": "vcs", "url": "$src/branch"}],
 "require": {"some-vendor/small": "2.1.0"}, "require-dev": {"some-vendor/branch": "dev-main"}}
J
composer update -q --no-interaction >&2
composer --version 2> /dev/null | cut -d' ' -f3 > ../version
composer show --no-ansi 2> /dev/null | sed 's#^\([^ ]*\) *\(dev-[^ ]* [^ ]*\|[^ ]*\).*#vendor//\1 \2#'
