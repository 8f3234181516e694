"""The machine's own address, for people who are to open it from another device."""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915
_SIOCGIFFLAGS = 0x8913
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8


def lan_address() -> str | None:
    """Return the IPv4 address of the first interface that is up, None without one.

    Asks the kernel (``netdevice(7)``) and sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _index, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(sock, _SIOCGIFFLAGS, request)
                (flags,) = struct.unpack_from("H", answer, 16)
                if not flags & _IFF_UP or flags & _IFF_LOOPBACK:
                    continue
                return socket.inet_ntoa(fcntl.ioctl(sock, _SIOCGIFADDR, request)[20:24])
            except OSError:
                # An interface without an address.
                continue
    return None
