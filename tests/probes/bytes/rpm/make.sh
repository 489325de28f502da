# rpm: three packages, one of another architecture, installed into a root, as `rpm -qa` says.
need rpm rpmbuild
for package in 'small 0 1.5 3 x86_64' 'small-tool 2 2.0~rc1 1.fc40 x86_64' 'lib 0 1 1 i686'; do
    set -- $package
    printf 'Name: %s\nEpoch: %s\nVersion: %s\nRelease: %s\nSummary: x\nLicense: x\n%%description\nx\n%%files\n' $1 $2 $3 $4 > ../$1.spec
    rpmbuild --quiet -bb --target $5 --define "_topdir $PWD/../build" ../$1.spec >&2
done
mkdir -p rootfs
rpm --root "$PWD/rootfs" --define '_db_backend sqlite' --define '_dbpath /var/lib/rpm' -i --nodeps --ignorearch ../build/RPMS/*/*.rpm >&2
rpm --version | cut -d' ' -f3 > ../version
rpm --root "$PWD/rootfs" --define '_dbpath /var/lib/rpm' -qa --qf '%{NAME} %{EPOCH}:%{VERSION}-%{RELEASE} %{ARCH}\n' |
    sed 's/ 0:/ /; s/^\([^ ]*\)\(.*\) i686$/\1.i686\2/; s/ x86_64$//; s|^|rootfs/|'
