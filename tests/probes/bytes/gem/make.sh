# gem: two gems, one for a platform, installed into a directory, as `gem list` says.
need gem
mkdir ../src
for gem in 'small-2 1.5.0.rc1 ruby' 'native 2.0 x86_64-linux'; do
    set -- $gem
    printf 'Gem::Specification.new do |s|\n s.name = "%s"; s.version = "%s"; s.platform = "%s"; s.summary = "x"; s.authors = ["x"]; s.files = []\nend\n' $1 $2 $3 > ../src/$1.gemspec
    (cd ../src && gem build -q $1.gemspec -o $1.gem) >&2
    gem install -q --local --no-document --install-dir .gems ../src/$1.gem >&2
done
gem --version > ../version
GEM_HOME=$PWD/.gems GEM_PATH=$PWD/.gems gem list --no-details --prerelease | sed -n '/default/!s|^\([^ ]*\) (\([^ ,)]*\).*|.gems/\1 \2|p'
