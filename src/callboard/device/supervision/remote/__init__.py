"""Context hosts on other machines: frames over TCP, to a node that starts hosts and relays their messages."""
