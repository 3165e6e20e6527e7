package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"railbed/plan/spec"
	"railbed/plan/topology"
)

// compiler is the state of one Compile. Its steps fill in the plan in order. Each appends to
// problems.
type compiler struct {
	t        *spec.Testbed
	problems spec.Problems
	reported map[string]bool // paths, see once
	graph    *topology.Graph
	plan     *Plan
	// nodeAt and switchAt are indices in the plan by name.
	nodeAt, switchAt map[string]int
	// settings holds the settings that the file gives for each switch.
	settings []spec.Switch
	// wires are the plan's links with their ends resolved, in the same order.
	wires []wire
	// ports holds the switches' ports with the device at the other end.
	ports [][]port
	// attached holds the switches of each node's NICs.
	attached [][]int
	// distanceTo caches the results of searches, see distances.
	distanceTo map[string][]int
}

// wire is a link whose ends are given by indices.
type wire struct {
	a, b endpoint
}

// endpoint is an interface of a node or of a switch.
type endpoint struct {
	isSwitch     bool
	index, iface int
}

// port is the other end of a switch's port.
type port struct {
	link int
	peer endpoint
}

// Compile compiles a testbed into a plan. Its error is a spec.Problems with all errors of the file
// and their positions.
func Compile(t *spec.Testbed) (*Plan, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	c := &compiler{t: t, distanceTo: map[string][]int{}, plan: &Plan{
		Name: t.Name, Seed: cmp.Or(t.Seed, 1), Dilation: cmp.Or(t.Dilation, 1),
	}}
	// A phase relies on the values that the phases before it have accepted. The steps of one phase
	// report problems together.
	phases := [][]func(){
		{c.shape},
		{c.addNodes, c.addSwitches, c.addLinks, c.checkOverrides, c.checkSteps},
		{c.checkKinds, c.checkRouting, c.checkRanks},
		{c.checkSoftOnly, c.checkCNINodes, c.checkSysctls},
		{c.checkMTU, c.checkReach, c.addSoft},
		{c.address},
		{c.addRouting, c.nameNICs},
		{c.addRDMA, c.addManagement, c.addRanks, c.addRequirements},
		{c.addJobs, c.checkFaultRanks},
		{c.checkInNetwork},
	}
	for _, phase := range phases {
		for _, step := range phase {
			step()
		}
		if len(c.problems) > 0 {
			return nil, c.problems.Err()
		}
	}
	return c.plan, nil
}

// wrong adds a problem with the value of a path.
func (c *compiler) wrong(path, want, what string, args ...any) {
	c.problems = append(c.problems, c.t.Source.Problem(path, fmt.Sprintf(what, args...), want))
}

// wrongKey adds a problem with the key of a path.
func (c *compiler) wrongKey(path, want, what string, args ...any) {
	c.problems = append(c.problems, c.t.Source.KeyProblem(path, fmt.Sprintf(what, args...), want))
}

// digest is a pure function of the testbed, the purpose and the name. All values that must differ
// between nodes or switches and be the same in every compilation come from it.
func (c *compiler) digest(purpose, name string) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "railbed %s\x00%s\x00%d\x00%s", purpose, c.plan.Name, c.plan.Seed,
		name))
}

// machineID follows machine-id(5): 128 bits in hex, in the form of a version 4 UUID.
func (c *compiler) machineID(node string) string {
	sum := c.digest("machine-id", node)
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return hex.EncodeToString(sum[:16])
}

// hashSeed never returns 0, because the kernel then chooses a seed itself.
func (c *compiler) hashSeed(sw string) uint32 {
	sum := c.digest("hash-seed", sw)
	return max(1, binary.BigEndian.Uint32(sum[:4]))
}
