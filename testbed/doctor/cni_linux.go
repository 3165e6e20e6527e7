package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"railbed/nodes/cni"
)

// tryCNIPlugins looks for the CNI project's plugins in the folders of a management network, and for
// the programs that they run.
func tryCNIPlugins() (string, error) {
	found := ""
	for _, name := range cni.StandardPlugins {
		at := ""
		for _, dir := range cni.PluginDirs {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && at == "" {
				at = path
			}
		}
		if at == "" {
			return "", fmt.Errorf("no plugin %s in %s", name, strings.Join(cni.PluginDirs, ", "))
		}
		found = filepath.Dir(at)
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		return "", err
	}
	if os.Geteuid() != 0 {
		return "", errors.New("such a network needs an interface in the host's namespace, which belongs to " +
			"root")
	}
	return found, nil
}
