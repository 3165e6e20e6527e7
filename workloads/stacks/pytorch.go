package stacks

import (
	_ "embed" // for the training
	"fmt"
	"slices"
	"strconv"
	"strings"

	"railbed/capture/report"
	"railbed/internal/units"
	"railbed/plan"
)

// python is the distribution's Python. Another one in PATH lacks the modules.
const python = "/usr/bin/python3"

// pytorch trains with PyTorch's DistributedDataParallel over Gloo, with one process per rank. The
// program's last line says that all replicas are equal bit by bit.
var pytorch = adapter{
	kind:    "pytorch",
	tools:   []tool{{names: []string{python}, debian: "python3-torch"}},
	version: []string{python, "-c", "import torch, torch.distributed; print('torch', torch.__version__)"},
	says:    `torch `,
	least:   "1.13",
	metric:  metric{name: "Time", unit: "ms", less: true},
	figures: []string{"Time(ms)"},
	run:     runPyTorch,
}

//go:embed programs/ddp.py
var ddpProgram []byte

const (
	ddpPath = "/tmp/railbed-ddp.py"
	ddpPort = 29500 // torchrun's default
)

// ddpColumns are the columns of the training's table.
var ddpColumns = []string{"Step", "Loss", "Time(ms)"}

func runPyTorch(r *run) (table, error) {
	if err := r.each(r.Nodes, func(_ int, node string) error {
		return r.put(node, ddpPath, ddpProgram)
	}); err != nil {
		return table{}, err
	}
	// One entry per rank: a node with several ranks has an entry for each.
	nodes := make([]*plan.Node, len(r.ranks))
	for i, rank := range r.ranks {
		nodes[i] = r.Nodes[slices.IndexFunc(r.Nodes, func(n *plan.Node) bool { return n.Name == rank.Node })]
	}
	var printed string
	err := r.each(nodes, func(i int, node string) error {
		output, err := r.output(node, "env", "MASTER_ADDR="+r.ranks[0].Addr4.String(),
			fmt.Sprintf("MASTER_PORT=%d", ddpPort),
			fmt.Sprintf("RANK=%d", i), fmt.Sprintf("WORLD_SIZE=%d", len(r.ranks)),
			"GLOO_SOCKET_IFNAME="+r.ranks[i].NIC,
			python, ddpPath, fmt.Sprint(uint64(r.Step.Size)), fmt.Sprint(r.Step.Iterations))
		if i == 0 {
			printed = string(output)
		}
		if err != nil {
			return fmt.Errorf("rank %d in %s: %w", i, node, err)
		}
		return nil
	})
	if err != nil {
		return table{}, err
	}
	t, parameters, err := parseDDP(printed, len(r.ranks))
	// Each rank has its own gradients. So whatever the algorithm, a rank sends at least as many
	// bytes as the gradients have. Ranks that share a node may combine gradients within the node.
	for _, rank := range r.ranks {
		alone := len(slices.DeleteFunc(slices.Clone(r.ranks), func(other plan.Rank) bool {
			return other.Node != rank.Node
		})) == 1
		t.sends = append(t.sends, map[bool]units.Bytes{true: units.Bytes(
			4 * parameters * r.Step.Iterations)}[alone])
	}
	return t, err
}

// parseDDP parses the output of rank 0.
func parseDDP(text string, ranks int) (t table, parameters int, err error) {
	t.columns = ddpColumns
	equal := false
	for _, line := range lines(text) {
		if n, found := strings.CutPrefix(line, "# parameters "); found {
			if parameters, err = strconv.Atoi(n); err != nil {
				return t, 0, fmt.Errorf("read the table of ddp.py: %w", err)
			}
			continue
		}
		if line == fmt.Sprintf("# replicas %d equal", ranks) {
			equal = true
			continue
		}
		cells := strings.Fields(line)
		if len(cells) != len(ddpColumns) {
			continue // a warning of PyTorch
		}
		took, err := figure(cells[2])
		if err != nil {
			continue
		}
		t.rows = append(t.rows, report.StackRow{Cells: cells, Key: cells[0], Value: took})
	}
	if parameters == 0 || len(t.rows) == 0 || !equal {
		return t, 0, fmt.Errorf("ddp.py printed an incomplete table: %q", text[:min(len(text), errorTail)])
	}
	return t, parameters, nil
}
