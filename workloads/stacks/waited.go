package stacks

import (
	"fmt"
	"strconv"
	"strings"

	"railbed/plan"
)

// beatFile is the path prefix of the files, in a node's /tmp, in which Railbed's own rank programs
// write the number of their current call. The rank follows the prefix.
const beatFile = "/tmp/railbed-beat."

// lookScript prints "rank state call" for process $1, if a launcher gave it a rank. The state is
// that of proc(5). The call is missing if the rank writes none.
const lookScript = `
	rank=$(tr "\0" "\n" < /proc/$1/environ | sed -nE "s/^(OMPI_COMM_WORLD_RANK|PMI_RANK|RANK)=//p" | head -n1)
	[ -n "$rank" ] && echo $rank $(sed "s/.*) //" /proc/$1/stat | cut -c1) $(cat ` + beatFile + `$rank)`

// waitedFor names the ranks that the others were waiting for, as far as their processes show. These
// are ranks that have ended, that are stopped, or whose call number is behind the others'. states
// is the output of lookScript in each node.
func waitedFor(ranks []plan.Rank, states map[string]string) string {
	type seen struct {
		state string
		call  int
	}
	found := map[int]seen{}
	furthest := 0
	for _, text := range states {
		for _, line := range lines(text) {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			rank, err := strconv.Atoi(fields[0])
			if err != nil {
				continue
			}
			s := seen{state: fields[1]}
			if len(fields) > 2 {
				s.call, _ = strconv.Atoi(fields[2])
			}
			found[rank], furthest = s, max(furthest, s.call)
		}
	}
	if len(found) == 0 {
		return "" // no process has a rank
	}
	var words []string
	for i, rank := range ranks {
		name := fmt.Sprintf("rank %d (%s)", i, rank.Node)
		switch s, alive := found[i]; {
		case !alive:
			words = append(words, name+" has ended")
		case s.state == "T":
			words = append(words, name+" is stopped")
		case s.call < furthest:
			words = append(words, fmt.Sprintf("%s is in call %d, others in %d", name, s.call, furthest))
		}
	}
	return strings.Join(words, "; ")
}
