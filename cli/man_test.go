package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/cli"
)

// TestMan: every command has a man page, whose date is SOURCE_DATE_EPOCH's.
func TestMan(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := filepath.Join(t.TempDir(), "man1")
	if code, out, errs := railbed("", "man", dir); code != 0 || out+errs != "" {
		t.Fatalf("code %d, %s%s", code, out, errs)
	}
	pages := 0
	for _, path := range cli.CommandPaths() {
		name := "railbed-" + strings.ReplaceAll(path, " ", "-")
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		switch path {
		case "help", "man", "extcap":
			if err == nil {
				t.Errorf("there is a page of %s", path)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		pages++
		title := `.TH "` + strings.ToUpper(name) + `" "1" "Nov 2023" "railbed development" "Railbed"`
		for _, want := range []string{title, ".SH NAME\n" + name + " - ", ".SH SYNOPSIS"} {
			if text := strings.ReplaceAll(string(page), `\-`, "-"); !strings.Contains(text, want) {
				t.Errorf("%s has no %q:\n%.300s", name, want, text)
			}
		}
	}
	if pages < 40 {
		t.Errorf("%d pages", pages)
	}
	if code, _, errs := railbed("", "man", "/dev/null/man1"); code != 1 ||
		!strings.HasPrefix(errs, "railbed: write man pages: mkdir /dev/null: not a directory") {
		t.Errorf("below a file: code %d, %s", code, errs)
	}
}
