//go:build deps

package main

import (
	_ "github.com/agnivade/levenshtein"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/creack/pty"
	_ "github.com/goccy/go-yaml"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/gopacket"
	_ "github.com/invopop/jsonschema"
	_ "github.com/jedib0t/go-pretty/v6/table"
	_ "github.com/packetcap/go-pcap/filter"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/spf13/cobra"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "golang.org/x/net/bpf"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
)
