package spec

import (
	_ "embed"
	"slices"
)

//go:generate go test -run TestSchemaFileIsMade . -update

//go:embed railbed.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of a file, made from the types of this package.
// Editors complete and check a file that starts with
//
//	# yaml-language-server: $schema=railbed.schema.json
//
// The schema checks single values. Decode checks more.
func Schema() []byte { return slices.Clone(schema) }
