package wireshark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"railbed/internal/printable"
)

// ErrNoTshark is wrapped if tshark is not installed.
var ErrNoTshark = errors.New("tshark is not installed")

// Home selects the user whose Wireshark folders are used. The zero value is the calling user.
type Home struct {
	// Dir takes the place of the user's home directory, with the folders of the XDG specification below it.
	Dir string
}

// Folders are a user's own folders of Wireshark.
type Folders struct {
	Config  string   `json:"config"`  // preferences and profiles
	Plugins string   `json:"plugins"` // plugins in Lua
	Extcap  []string `json:"extcap"`  // programs that capture; two if it is not known which one is read
	// Tshark reports whether tshark named the folders. If not, they are the defaults.
	Tshark bool `json:"tshark"`
}

// tsharkTimeout bounds a call of tshark, which runs every plugin that the user has.
const tsharkTimeout = 15 * time.Second

// tshark runs tshark for a user and returns its output.
func (h Home) tshark(ctx context.Context, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tsharkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tshark", args...)
	cmd.Env, cmd.WaitDelay = append(h.environ(), env...), time.Second
	// A plugin that hangs ends with tshark.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", ErrNoTshark
	case err != nil:
		return "", fmt.Errorf("run tshark %s: %w: %s", strings.Join(args, " "), err,
			printable.Line(strings.TrimSpace(stderr.String())))
	}
	return string(out), nil
}

// environ returns this process's environment with the user's home directory.
func (h Home) environ() []string {
	var env []string
	for _, entry := range os.Environ() {
		if h.Dir != "" && (strings.HasPrefix(entry, "XDG_") || strings.HasPrefix(entry, "HOME=") ||
			strings.HasPrefix(entry, "WIRESHARK_")) {
			continue
		}
		env = append(env, entry)
	}
	if h.Dir != "" {
		env = append(env, "HOME="+h.Dir)
	}
	return env
}

// Folders asks tshark for the folders. If tshark is not installed, they are the defaults.
func (h Home) Folders(ctx context.Context) (Folders, error) {
	home, xdg := h.Dir, ""
	if home == "" {
		home, xdg = os.Getenv("HOME"), os.Getenv("XDG_CONFIG_HOME")
	}
	if !filepath.IsAbs(home) {
		return Folders{}, fmt.Errorf("find the folders of Wireshark: HOME is %q; want an absolute path", home)
	}
	text, err := h.tshark(ctx, nil, "-G", "folders")
	if errors.Is(err, ErrNoTshark) {
		return defaultFolders(home, xdg), nil
	}
	if err != nil {
		return Folders{}, err
	}
	return parseFolders(text)
}

// defaultFolders are the folders by Wireshark's rules. Versions before 4.2 read plugins that capture below
// the preferences, and later ones beside the other plugins.
func defaultFolders(home, xdg string) Folders {
	if xdg == "" {
		xdg = filepath.Join(home, ".config")
	}
	config := filepath.Join(xdg, "wireshark")
	if old := filepath.Join(home, ".wireshark"); !isDir(config) && isDir(old) {
		config = old
	}
	library := filepath.Join(home, ".local", "lib", "wireshark")
	return Folders{Config: config, Plugins: filepath.Join(library, "plugins"),
		Extcap: []string{filepath.Join(config, "extcap"), filepath.Join(library, "extcap")}}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// parseFolders reads the output of tshark -G folders. Wireshark 4.0 does not print the user's folder of
// programs that capture, which is below the preferences.
func parseFolders(text string) (Folders, error) {
	named := map[string]string{}
	for line := range strings.Lines(text) {
		if name, path, found := strings.Cut(line, ":"); found && filepath.IsAbs(strings.TrimSpace(path)) {
			named[strings.ToLower(strings.TrimSpace(name))] = filepath.Clean(strings.TrimSpace(path))
		}
	}
	f := Folders{Config: named["personal configuration"], Plugins: named["personal lua plugins"],
		Tshark: true}
	if f.Config == "" {
		return f, errors.New("tshark -G folders names no personal configuration")
	}
	if f.Plugins == "" {
		return f, errors.New("tshark -G folders names no personal folder of Lua plugins; want a " +
			"Wireshark with Lua")
	}
	extcap := named["personal extcap path"]
	if extcap == "" {
		extcap = filepath.Join(f.Config, "extcap")
	}
	f.Extcap = []string{extcap}
	return f, nil
}

// Listed reports whether tshark -D lists the interface of the plugin.
func (h Home) Listed(ctx context.Context) (bool, error) {
	text, err := h.tshark(ctx, []string{probeVariable + "=1"}, "-D")
	return strings.Contains(text, probeName), err
}
