# dpkg: two packages of a system that lies in the environment, one removed again but for its configuration, as dpkg-query says.
need dpkg dpkg-deb
mkdir -p rootfs/var/lib/dpkg/updates rootfs/var/lib/dpkg/info rootfs/var/lib/dpkg/triggers
touch rootfs/var/lib/dpkg/status
for package in 'small-server 2:1.5-1' 'gone 1.0'; do
    set -- $package
    mkdir -p ../$1/DEBIAN ../$1/etc
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: A. User <user@example.com>\nDescription: x\n Version: 9 is no field here\n' $1 $2 > ../$1/DEBIAN/control
    echo x > ../$1/etc/$1.conf && echo /etc/$1.conf > ../$1/DEBIAN/conffiles
    dpkg-deb --root-owner-group --build ../$1 ../$1.deb >&2
    dpkg --force-not-root --force-bad-path --root="$PWD/rootfs" --log=../log -i ../$1.deb >&2
done
dpkg --force-not-root --force-bad-path --root="$PWD/rootfs" --log=../log -r gone >&2
dpkg --version | sed -n '1s/.*version \([^ ]*\).*/\1/p' > ../version
dpkg-query --admindir=rootfs/var/lib/dpkg -W -f '${db:Status-Status} rootfs/${Package} ${Version}\n' | sed -n 's/^installed //p'
