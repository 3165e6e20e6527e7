package stacks

import (
	"regexp"
	"strings"
	"time"

	"railbed/workloads/stacks/rsh"
)

// mpichFinalize is the time limit for MPI_Finalize. Up to MPICH 4.1, ranks over UCX may wait for
// each other there for ever. One rank waits in a barrier of the process manager, and another for an
// answer of the first (github.com/pmodels/mpich/pull/6596).
const mpichFinalize = 2 * time.Second

// mpich is MPICH with the Hydra process manager (mpiexec, hydra_pmi_proxy).
var mpich = adapter{
	kind: "mpich",
	tools: []tool{
		{names: []string{"mpiexec.mpich", "mpiexec.hydra"}, debian: "mpich"},
		{names: []string{"mpicc.mpich"}, debian: "libmpich-dev"},
		{names: []string{"gcc"}, debian: "gcc"},
	},
	version: []string{"mpiexec.mpich", "--version"}, says: `Version:\s+`, least: "3.4",
	metric: mpiMetric, figures: mpiFigures,
	run: mpi{
		compiler: "mpicc.mpich", local: "MPI_LOCALRANKID",
		launch: func(r *run, perNode []string) []string {
			// The launcher's own address: that of a NIC, which other nodes reach.
			return []string{
				"mpiexec.mpich", "-launcher", "rsh", "-launcher-exec", rsh.Agent, "-localhost",
				r.Nodes[0].Name, "-iface", r.ranks[0].NIC,
				"-hosts", strings.Join(perNode, ","), "-bind-to", "none",
			}
		},
		finalizes: mpichFinalize,
		died:      mpichDied,
	}.run,
}

// mpichDied matches Hydra's message about a rank that ended.
var mpichDied = []*regexp.Regexp{regexp.MustCompile(`RUNNING AT (?P<node>\S+)`)}
