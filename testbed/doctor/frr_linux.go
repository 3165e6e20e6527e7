package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
)

// frrDaemons are what package nodes/frr runs.
var frrDaemons = []string{"/usr/lib/frr/zebra", "/usr/lib/frr/bgpd", "/usr/lib/frr/bfdd"}

// leastFRR is the oldest major version whose configuration is as nodes/frr writes it.
const leastFRR = 8

// tryFRR looks for FRRouting's daemons, asks one for its version, and tells who
// cannot run them: they change their user id, for which a user namespace of one id
// has none.
func tryFRR() (string, error) {
	for _, daemon := range frrDaemons {
		if _, err := exec.LookPath(daemon); err != nil {
			return "", err
		}
	}
	line, err := tryProgram(frrDaemons[0], "--version")()
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`version ([0-9]+)`).FindStringSubmatch(line)
	if found == nil {
		return "", fmt.Errorf("%q names no version", line)
	}
	if major, _ := strconv.Atoi(found[1]); major < leastFRR {
		return "", fmt.Errorf("%q is older than version %d", line, leastFRR)
	}
	if os.Geteuid() != 0 {
		return "", errors.New("its daemons change their user id, which a user namespace of one id does not " +
			"let them")
	}
	return line, nil
}
