package wireshark

import (
	_ "embed"
	"io/fs"
	"path/filepath"
	"strings"

	"railbed/capture/layers"
)

var (
	//go:embed preferences
	preferences []byte
	//go:embed colorfilters
	colorfilters []byte
)

// profile is the name of the profile.
const profile = "Railbed"

// wanted is a file to install.
type wanted struct {
	path string
	what string // it is for
	text []byte
	mode fs.FileMode
}

// wantedFiles returns the files of this version of Railbed. program is the path of the command railbed.
func wantedFiles(f Folders, program string) (files []wanted) {
	for _, dir := range f.Extcap {
		files = append(files, wanted{filepath.Join(dir, "railbed-extcap"), "interfaces of running testbeds",
			wrapper(program), 0o755})
	}
	settings := filepath.Join(f.Config, "profiles", profile)
	return append(files,
		wanted{filepath.Join(f.Plugins, "railbed.lua"), "dissectors, and fields of records", layers.Dissector,
			0o644},
		wanted{filepath.Join(settings, "preferences"), "profile " + profile + ": columns", preferences,
			0o644},
		wanted{filepath.Join(settings, "colorfilters"), "profile " + profile + ": colours", colorfilters,
			0o644})
}

// wrapper is the program that Wireshark calls. It calls railbed by its path, so an upgrade of railbed
// changes the plugin, too. If railbed has moved, the wrapper looks for it in PATH.
func wrapper(program string) []byte {
	return []byte(`#!/bin/sh
# Railbed's interfaces in Wireshark. "railbed wireshark install" wrote this file, and
# "railbed wireshark uninstall" removes it.
railbed='` + strings.ReplaceAll(program, "'", `'\''`) + `'
[ -x "$railbed" ] || railbed=$(command -v railbed) || exit 0
exec "$railbed" extcap "$@"
`)
}
