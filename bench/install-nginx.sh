#!/bin/sh
# Installs Debian's nginx, which the comparisons run beside the gateway; does nothing where it is present.
# The package would start a server on port 80, now and at every boot: a policy forbids the one, we undo the other.
set -eu

if command -v nginx >/dev/null || [ -x /usr/sbin/nginx ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "install-nginx: no nginx and no apt-get here; install nginx by your system's own means" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-nginx: no nginx here, and only root may install it: sudo $0" >&2
    exit 1
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT INT TERM
fi
export DEBIAN_FRONTEND=noninteractive
install="apt-get install --yes --no-install-recommends --quiet nginx"
$install || { apt-get update --quiet && $install; }
if command -v deb-systemd-helper >/dev/null; then
    deb-systemd-helper disable nginx.service >/dev/null
fi
