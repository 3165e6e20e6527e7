package convert

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// Conversion of the parts of a topology other than nodes and links: files, ports of the host, and
// times.

// hostPath returns a path of the host as written in the testbed file. It returns "" for a path that
// depends on the user's environment.
func (i *importer) hostPath(path string) string {
	switch {
	case path == "" || path[0] == '~' || strings.Contains(path, "$"):
		return ""
	case filepath.IsAbs(path) || cmp.Or(i.options.Folder, ".") == ".":
		return path
	}
	path = filepath.Join(i.options.Folder, path)
	if !filepath.IsAbs(path) && !strings.HasPrefix(path, "../") {
		path = "./" + path
	}
	return path
}

// importEnv makes containerlab pass on the variables of its caller.
const importEnv = "__IMPORT_ENVS"

// fillEnv converts environment variables. Those of files come first.
func (i *importer) fillEnv(node *spec.Node, d definition) {
	set := func(name, value string) {
		if node.Env == nil {
			node.Env = map[string]string{}
		}
		node.Env[name] = value
	}
	for _, file := range d.envFiles {
		if i.options.ReadFile == nil {
			i.add(file.at, "write the variables into env", "env file %q is left out", file.value)
			continue
		}
		content, err := i.options.ReadFile(file.value)
		if err != nil {
			i.add(file.at, "write the variables into env", "env file %q is left out: %v", file.value, err)
			continue
		}
		number := 0
		for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
			number++
			line := strings.TrimSpace(lines.Text())
			if line == "" || line[0] == '#' {
				continue
			}
			if found := assignment.FindStringSubmatch(line); found != nil {
				set(found[1], found[2]+found[3]+found[4])
			} else {
				i.add(file.at, "want NAME=VALUE; write values with shell variables into env",
					"line %d of env file %q is left out", number, file.value)
			}
		}
	}
	for _, s := range d.env {
		if s.key == importEnv {
			i.add(s.keyAt, "write the variables into env",
				"%s is left out: a testbed file does not depend on the user's environment", importEnv)
			continue
		}
		set(s.key, s.value.value)
	}
}

// assignment matches a line of an env file: in double quotes, in single quotes, or unquoted. It
// matches no line with escapes or variables.
var assignment = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(?:"([^"\\$]*)"|'([^']*)'|([^"'\\$#\s][^"'\\$#]*?)?)(?:\s+#.*)?$`)

// publish converts published ports of a server.
func (i *importer) publish(node *spec.Node, ports []text) {
	for _, port := range ports {
		published, err := spec.ParsePublished(port.value)
		if err != nil {
			i.add(port.at, "want HOST:NODE or HOST:NODE/udp: ports are published one by one, at all of the "+
				"host's addresses", "port %q is left out", port.value)
			continue
		}
		if node.Management == nil {
			node.Management = &spec.Management{}
		}
		entry := fmt.Sprintf("%d:%d", published.HostPort, published.NodePort)
		if published.Protocol == "udp" {
			entry += "/udp"
		}
		if !slices.Contains(node.Management.Publish, entry) {
			node.Management.Publish = append(node.Management.Publish, entry)
		}
	}
}

// addManagement converts the addresses of the management network if a server uses it.
func (i *importer) addManagement() {
	beside := slices.ContainsFunc(i.testbed.Nodes, func(n spec.Entry[spec.Node]) bool {
		return n.Value.Management != nil
	})
	for _, family := range []struct {
		subnet text
		name   string
		is4    bool
		into   *string
	}{
		{i.lab.mgmtSubnet, "IPv4", true, &i.testbed.Addressing.Management4},
		{i.lab.mgmtSubnet6, "IPv6", false, &i.testbed.Addressing.Management6},
	} {
		subnet := family.subnet
		if subnet.value == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(subnet.value)
		switch {
		case err != nil || prefix.Addr().Is4() != family.is4:
			i.add(subnet.at, "want an "+family.name+" prefix", "%s-subnet %q of mgmt is left out",
				strings.ToLower(family.name), subnet.value)
		case !beside:
			i.add(subnet.at, "railbed exec and shell need none, and management: {} gives a node a "+
				"management NIC", "the management network is left out")
		default:
			*family.into = prefix.Masked().String()
		}
	}
}

// Docker's defaults for a healthcheck.
const (
	healthPeriod  = 30 * time.Second // the time between checks, and the timeout of each
	healthRetries = 3
)

// addHealth converts a healthcheck. The testbed is up when the check has passed. Its timeout is the
// time after which containerlab calls the container unhealthy.
func (i *importer) addHealth(node *spec.Node, h *labHealth) {
	if h == nil {
		return
	}
	var words []string
	for _, word := range h.test {
		words = append(words, word.value)
	}
	switch {
	case len(words) > 1 && words[0] == "CMD":
		words = words[1:]
	case len(words) == 2 && words[0] == "CMD-SHELL":
		words = []string{"/bin/sh", "-c", words[1]}
	default:
		i.add(h.at, "want test: [CMD, PROGRAM, ...] or [CMD-SHELL, COMMAND]", "the healthcheck is left out")
		return
	}
	number := func(t text, otherwise int) time.Duration {
		value, err := strconv.Atoi(t.value) // as it was read; an empty value is an error
		if err != nil || value == 0 {       // Docker uses its default for 0, too
			value = otherwise
		}
		return time.Duration(value)
	}
	const seconds = int(healthPeriod / time.Second)
	interval, timeout := number(h.interval, seconds)*time.Second, number(h.timeout, seconds)*time.Second
	patience := number(h.startsFor, 0)*time.Second + number(h.retries, healthRetries)*(interval+timeout)
	node.Health = &spec.Health{Command: words, Timeout: units.Duration(patience)}
	if h.interval.value != "" {
		node.Health.Interval = units.Duration(interval)
	}
	i.add(h.at, "", "the testbed is up when the healthcheck passes within %s", patience)
}
