package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readJSON reads a file, and refuses keys that the value does not have.
func readJSON(t *testing.T, path string, value any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// devcontainer has the keys of the file, with the names of containers.dev.
type devcontainer struct {
	Name, Image, PostCreateCommand string
	Privileged                     bool
	Customizations                 struct {
		VSCode struct {
			Extensions []string
			Settings   struct {
				Schemas map[string][]string `json:"yaml.schemas"`
			}
		}
	}
}

// catalogEntry has the keys that SchemaStore's schema-catalog.json requires, and fileMatch.
type catalogEntry struct {
	Name, Description, URL string
	FileMatch              []string
}

const schemaFile = "plan/spec/railbed.schema.json"

// TestDevcontainer compares the container for development with go.mod, the Dockerfile and the names of files.
func TestDevcontainer(t *testing.T) {
	var d devcontainer
	readJSON(t, ".devcontainer/devcontainer.json", &d)
	find := func(file, pattern string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s: no %s", file, pattern)
		}
		return string(found[1])
	}
	if want := "golang:" + find("go.mod", `(?m)^go (\d+\.\d+)`) + "-bookworm"; d.Image != want {
		t.Errorf("image %s, want %s as in go.mod", d.Image, want)
	}
	if want := find("Dockerfile", `(?m)^ARG GO_IMAGE=(.*)$`); d.Image != want {
		t.Errorf("image %s, and the Dockerfile has %s", d.Image, want)
	}
	if !d.Privileged || !slices.Contains(d.Customizations.VSCode.Extensions, "redhat.vscode-yaml") {
		t.Errorf("want privileges for namespaces, and the extension for YAML: %+v", d)
	}
	for command := range strings.SplitSeq(d.PostCreateCommand, " && ") {
		if _, err := os.Stat(command); err != nil && command != "make" {
			t.Errorf("command after the creation: %v", err)
		}
	}
	var entry catalogEntry
	readJSON(t, "packaging/schemastore/catalog.json", &entry)
	want := map[string][]string{"./" + schemaFile: entry.FileMatch}
	if got := d.Customizations.VSCode.Settings.Schemas; !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("schemas %v, want %v as in the entry for SchemaStore", got, want)
	}
}

// TestSchemaStore compares what is submitted to SchemaStore with the schema, the pages and the files here.
func TestSchemaStore(t *testing.T) {
	var entry catalogEntry
	readJSON(t, "packaging/schemastore/catalog.json", &entry)
	const url = "https://www.schemastore.org/railbed.json"
	if entry.Name == "" || entry.Description == "" || entry.URL != url {
		t.Errorf("entry %+v", entry)
	}
	page, err := os.ReadFile("docs/how-to/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range entry.FileMatch {
		if !bytes.Contains(page, []byte("`"+pattern+"`")) {
			t.Errorf("docs/how-to/install.md does not name %s", pattern)
		}
	}
	matches := func(name string) bool {
		return slices.ContainsFunc(entry.FileMatch, func(pattern string) bool {
			matched, err := path.Match(pattern, name)
			return err != nil || matched
		})
	}
	for name, want := range map[string]bool{"railbed.yaml": true, "ring.railbed.yaml": true,
		"ring.railbed.yml": true, "docker-compose.yaml": false, "railbed.schema.json": false} {
		if matches(name) != want {
			t.Errorf("%s: matched %v, want %v", name, !want, want)
		}
	}
	// The GitLab template is railbed.yml, and no testbed.
	err = filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !matches(entry.Name()) {
			return err
		}
		if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte("\nfabric:")) {
			t.Errorf("editors would take %s for a testbed", file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSchemaStoreAccepts compares the exceptions that SchemaStore's checks need with the schema.
func TestSchemaStoreAccepts(t *testing.T) {
	var validation struct {
		NotStrict []string `json:"ajvNotStrictMode"`
		High      []string `json:"highSchemaVersion"`
		Options   map[string]struct{ UnknownFormat, UnknownKeywords []string }
	}
	readJSON(t, "packaging/schemastore/schema-validation.json", &validation)
	raw, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	formats, keywords := map[string]bool{}, map[string]bool{}
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				if format, is := inner.(string); is && key == "format" {
					formats[format] = true
				}
				if strings.HasPrefix(key, "x-") {
					keywords[key] = true
				}
				walk(inner)
			}
		case []any:
			for _, inner := range value {
				walk(inner)
			}
		}
	}
	walk(schema)
	options := validation.Options["railbed.json"]
	if want := slices.Sorted(maps.Keys(formats)); !slices.Equal(options.UnknownFormat, want) {
		t.Errorf("formats %q, and the schema has %q", options.UnknownFormat, want)
	}
	if want := slices.Sorted(maps.Keys(keywords)); !slices.Equal(options.UnknownKeywords, want) {
		t.Errorf("keywords %q, and the schema has %q", options.UnknownKeywords, want)
	}
	file := []string{"railbed.json"}
	high := bytes.Contains(raw, []byte("json-schema.org/draft/2020-12/schema"))
	if high != slices.Equal(validation.High, file) || !slices.Equal(validation.NotStrict, file) {
		t.Errorf("a schema of draft 2020-12 is %v, and the exceptions are %+v", high, validation)
	}
}
