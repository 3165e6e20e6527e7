package wireshark

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
)

const program = "/opt/it's here/railbed"

// below lists everything below a directory.
func below(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(dir, path); name != "." {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// withoutTshark hides tshark, so the folders are the defaults.
func withoutTshark(t *testing.T) Options {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	return Options{Home: Home{Dir: t.TempDir()}, Program: program}
}

func states(t *testing.T, o Options) map[string]State {
	t.Helper()
	status, err := GetStatus(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]State{}
	for _, f := range status.Files {
		name, _ := filepath.Rel(o.Home.Dir, f.Path)
		all[name] = f.State
	}
	return all
}

func want(t *testing.T, o Options, state State, except map[string]State) {
	t.Helper()
	all := states(t, o)
	for _, name := range []string{".config/wireshark/extcap/railbed-extcap",
		".local/lib/wireshark/extcap/railbed-extcap", ".local/lib/wireshark/plugins/railbed.lua",
		".config/wireshark/profiles/Railbed/preferences", ".config/wireshark/profiles/Railbed/colorfilters"} {
		wanted := state
		if other, is := except[name]; is {
			wanted = other
		}
		if all[name] != wanted {
			t.Errorf("%s is %s, want %s", name, all[name], wanted)
		}
		delete(all, name)
	}
	if len(all) > 0 {
		t.Errorf("more files: %v", all)
	}
}

// TestInstallAndUninstall: what was there before stays, and what install made goes.
func TestInstallAndUninstall(t *testing.T) {
	o := withoutTshark(t)
	theirs := filepath.Join(o.Home.Dir, ".config/wireshark/profiles/Mine/preferences")
	if err := os.MkdirAll(filepath.Dir(theirs), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(theirs, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := below(t, o.Home.Dir)
	want(t, o, Missing, nil)
	for range 2 {
		result, err := Install(t.Context(), o)
		if err != nil || len(result.Wrote) != 5 || result.Folders.Tshark {
			t.Fatalf("%+v, %v", result, err)
		}
		want(t, o, Installed, nil)
	}
	script := filepath.Join(o.Home.Dir, ".config/wireshark/extcap/railbed-extcap")
	if info, err := os.Stat(script); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the plugin: %v, %v", info.Mode(), err)
	}
	result, err := Uninstall(t.Context(), o)
	if err != nil || len(result.Kept) > 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	if after := below(t, o.Home.Dir); !slices.Equal(after, before) {
		t.Errorf("left: %v, want %v", after, before)
	}
	if result, err := Uninstall(t.Context(), o); err != nil || len(result.Removed) > 0 {
		t.Errorf("again: %+v, %v", result, err)
	}
}

// TestForeignFilesStay: install writes nothing if a file is in the way, a link among them, and uninstall
// leaves files that were changed or that others added.
func TestForeignFilesStay(t *testing.T) {
	o := withoutTshark(t)
	lua := filepath.Join(o.Home.Dir, ".local/lib/wireshark/plugins/railbed.lua")
	colours := filepath.Join(o.Home.Dir, ".config/wireshark/profiles/Railbed/colorfilters")
	for _, path := range []string{lua, colours} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	aside := filepath.Join(o.Home.Dir, "aside")
	if err := os.WriteFile(aside, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lua, []byte("-- theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(aside, colours); err != nil {
		t.Fatal(err)
	}
	before := below(t, o.Home.Dir)
	_, err := Install(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), lua) || !strings.Contains(err.Error(), colours) ||
		!strings.Contains(err.Error(), "--force") {
		t.Fatalf("install: %v", err)
	}
	if after := below(t, o.Home.Dir); !slices.Equal(after, before) {
		t.Fatalf("a refused install leaves %v, want %v", after, before)
	}
	o.Force = true
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Force = false
	want(t, o, Installed, nil)
	if text, err := os.ReadFile(aside); err != nil || string(text) != "theirs" {
		t.Errorf("install wrote through a link: %q, %v", text, err)
	}

	// As Wireshark does with the profile that it uses.
	if err := os.WriteFile(colours, []byte("# changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	recent := filepath.Join(filepath.Dir(colours), "recent")
	if err := os.WriteFile(recent, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, o, Installed, map[string]State{".config/wireshark/profiles/Railbed/colorfilters": Changed})
	if _, err := Install(t.Context(), o); err == nil {
		t.Error("install writes over a changed file")
	}
	result, err := Uninstall(t.Context(), o)
	if err != nil || len(result.Kept) != 1 || result.Kept[0].Path != colours {
		t.Fatalf("%+v, %v", result, err)
	}
	o.Force = true
	if result, err = Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	left := below(t, o.Home.Dir)
	if !slices.Contains(left, ".config/wireshark/profiles/Railbed/recent") || slices.ContainsFunc(left,
		func(name string) bool { return strings.HasPrefix(name, ".config/wireshark/extcap") }) {
		t.Errorf("left: %v; %+v", left, result)
	}
}

// TestInstallBringsUpToDate: files of an earlier version, and in a folder that is read no more, are replaced.
func TestInstallBringsUpToDate(t *testing.T) {
	o := withoutTshark(t)
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	folders, err := o.Home.Folders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := readRecord(folders)
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(o.Home.Dir, ".local/lib/wireshark/plugins/railbed.lua")
	elsewhere := filepath.Join(o.Home.Dir, "elsewhere")
	for i, path := range []string{old, elsewhere} {
		if err := os.WriteFile(path, []byte("-- earlier"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.drop(path)
		r.Files = append(r.Files, recordedFile{path, sum([]byte("-- earlier"))})
		if i == 1 {
			err = r.write(folders)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	want(t, o, Installed, map[string]State{".local/lib/wireshark/plugins/railbed.lua": Outdated})
	result, err := Install(t.Context(), o)
	if err != nil || !slices.Equal(result.Removed, []string{elsewhere}) {
		t.Errorf("%+v, %v", result, err)
	}
	want(t, o, Installed, nil)
	if err := os.WriteFile(recordPath(folders), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), o); err == nil || !strings.Contains(err.Error(), "railbed.json") {
		t.Errorf("a record of another program: %v", err)
	}
}

// TestHomesOfOthers: with sudo the home directory may be another user's, who can put links into it.
func TestHomesOfOthers(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	o := withoutTshark(t)
	if err := os.Chown(o.Home.Dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for _, do := range []func(context.Context, Options) (Result, error){Install, Uninstall} {
		if _, err := do(t.Context(), o); err == nil || !strings.Contains(err.Error(), "without sudo") {
			t.Errorf("%v", err)
		}
	}
	if left := below(t, o.Home.Dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestWrapperFindsRailbed: the plugin calls railbed by its path, and by PATH after a move.
func TestWrapperFindsRailbed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script, railbed := filepath.Join(dir, "railbed-extcap"), filepath.Join(dir, "railbed")
	if err := os.WriteFile(script, wrapper(railbed), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(want string) {
		t.Helper()
		cmd := exec.Command(script, "--a", "b c")
		cmd.Env = []string{"PATH=" + filepath.Join(dir, "other") + ":/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%q, %v; want %q", out, err, want)
		}
	}
	run("") // railbed is gone, and Wireshark has no interface of it
	echo := []byte("#!/bin/sh\necho \"$# $2 $3\"\n")
	if err := os.WriteFile(railbed, echo, 0o755); err != nil {
		t.Fatal(err)
	}
	run("3 --a b c\n")
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(railbed, filepath.Join(dir, "other", "railbed")); err != nil {
		t.Fatal(err)
	}
	run("3 --a b c\n")
}

// TestFolders reads what versions of tshark print. The first text comes from Debian's 4.0.
func TestFolders(t *testing.T) {
	const old = "Temp:                \t/tmp\nPersonal configuration:\t/home/u/.config/wireshark\n" +
		"Global configuration:\t/usr/share/wireshark\nPersonal Plugins:    " +
		"\t/home/u/.local/lib/wireshark/plugins/4.0\n" +
		"Personal Lua Plugins:\t/home/u/.local/lib/wireshark/plugins\nExtcap path:         " +
		"\t/usr/lib/wireshark/extcap\n"
	f, err := parseFolders(old)
	if err != nil || f.Config != "/home/u/.config/wireshark" ||
		f.Plugins != "/home/u/.local/lib/wireshark/plugins" ||
		!slices.Equal(f.Extcap, []string{"/home/u/.config/wireshark/extcap"}) {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = parseFolders(old + "Personal Extcap path:\t/home/u/.local/lib/wireshark/extcap\n")
	if err != nil || !slices.Equal(f.Extcap, []string{"/home/u/.local/lib/wireshark/extcap"}) {
		t.Errorf("%+v, %v", f, err)
	}
	for _, text := range []string{"", "Personal configuration:\trelative\n",
		"Personal configuration:\t/x\n"} {
		if f, err := parseFolders(text); err == nil {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// TestFoldersOfTshark: the installed tshark names folders below the given home directory, and finds the files
// there: the plugin, the profile's columns and its colours.
func TestFoldersOfTshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	o := Options{Home: Home{Dir: t.TempDir()}, Program: program}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	result, err := Install(t.Context(), o)
	if err != nil || !result.Folders.Tshark || len(result.Wrote) != 4 {
		t.Fatalf("%+v, %v", result, err)
	}
	for _, f := range result.Wrote {
		if !strings.HasPrefix(f.Path, o.Home.Dir+"/") {
			t.Errorf("wrote %s", f.Path)
		}
	}
	name := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(name, recorded(t), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := o.Home.tshark(t.Context(), nil, "-C", profile, "--color", "-r", name, "-T", "fields", "-e",
		"frame.number", "-e", "_ws.col.Verdict", "-e", "_ws.col.Depth", "-e", "_ws.col.Node", "-e",
		"_ws.col.Rank",
		"-e", "frame.coloring_rule.name")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"4\t\t\th0\t0\t", "5\tdrop\t64001\tleaf1\t\tRailbed: dropped",
		"6\tmark\t20\tleaf2\t\tRailbed: marked"} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("tshark lacks %q:\n%s", line, text)
		}
	}
}

// TestTsharkEndsWithItsPlugins: a plugin of the user's hangs, and the call is given up.
func TestTsharkEndsWithItsPlugins(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	h := Home{Dir: t.TempDir()}
	folders, err := h.Folders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pidFile := filepath.Join(t.TempDir(), "pid")
	if err := os.MkdirAll(folders.Extcap[0], 0o755); err != nil {
		t.Fatal(err)
	}
	hanging := fmt.Sprintf("#!/bin/sh\necho $$ >%s.new\nmv %[1]s.new %[1]s\nexec sleep 60\n", pidFile)
	if err := os.WriteFile(filepath.Join(folders.Extcap[0], "hanging"), []byte(hanging), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var pid int
	go func() {
		defer cancel()
		for pid == 0 && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
			text, _ := os.ReadFile(pidFile)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		}
	}()
	if listed, err := h.Listed(ctx); err == nil {
		t.Fatalf("listed %v without an error", listed)
	}
	if <-ctx.Done(); pid == 0 {
		t.Fatal("tshark did not call the plugin")
	}
	hosttest.Until(t, "the end of the plugin", func() bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !strings.Contains(string(line), "sleep") // gone, or a zombie
	})
}

func FuzzFolders(f *testing.F) {
	f.Add("Personal configuration:\t/x\nPersonal Lua Plugins:\t/y\n")
	f.Fuzz(func(t *testing.T, text string) {
		folders, err := parseFolders(text)
		if err == nil && (!filepath.IsAbs(folders.Config) || !filepath.IsAbs(folders.Plugins) ||
			!filepath.IsAbs(folders.Extcap[0])) {
			t.Fatalf("%+v", folders)
		}
	})
}

// FuzzRecord: a record of any text is read or refused.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"format":"railbed-wireshark/1","files":[{"path":"/x","sha256":"0"}]}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		folders := Folders{Config: dir}
		if err := os.WriteFile(recordPath(folders), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := readRecord(folders); err == nil && (r.Format != recordFormat || !json.Valid(text)) {
			t.Fatalf("%+v", r)
		}
	})
}
