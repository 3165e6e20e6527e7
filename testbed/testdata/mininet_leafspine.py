#!/usr/bin/python3
"""Bring a leaf-spine of Linux bridges up and down with Mininet, and print the
seconds that each took as JSON.

usage: mininet_leafspine.py LEAVES SPINES HOSTS_PER_LEAF

Mininet's fastest settings: no controller, no waiting for switches, no shaping
(Railbed shapes every link), no IPv6. With more than one spine the bridges form
a loop, so STP is on; with one it is off. Run it in a network namespace of its
own: Mininet's bridges live in the namespace that it is started in.
"""
import json
import sys
import time

from mininet.link import Link
from mininet.net import Mininet
from mininet.node import Host
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo


class LeafSpine(Topo):
    def build(self, leaves, spines, hosts):
        names = [self.addSwitch('p%d' % i, stp=spines > 1) for i in range(spines)]
        for i in range(leaves):
            leaf = self.addSwitch('l%d' % i, stp=spines > 1)
            for spine in names:
                self.addLink(leaf, spine)
            for j in range(hosts):
                self.addLink(self.addHost('h%d' % (i * hosts + j)), leaf)


leaves, spines, hosts = (int(argument) for argument in sys.argv[1:])
topo = LeafSpine(leaves, spines, hosts)
start = time.monotonic()
net = Mininet(topo=topo, host=Host, switch=LinuxBridge, link=Link, controller=None, waitConnected=False)
net.start()
up = time.monotonic()
net.stop()
down = time.monotonic()
print(json.dumps({'up': up - start, 'down': down - up}))
