package testbed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"railbed/internal/kernel"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// impostorPart takes the name of the supervisor's socket in a node, starts a command in
// another node, and prints what it got of that and what the client said.
const impostorPart = "impostor"

func impostor(args []string) int {
	listener, err := net.Listen("unix", supervisor.InsideSocket)
	if err != nil {
		fmt.Println("listen:", err)
		return 1
	}
	got := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		request, err := http.ReadRequest(bufio.NewReader(conn))
		conn.Close()
		if err != nil {
			got <- "nothing"
			return
		}
		got <- "request " + request.URL.Path
	}()
	err = testbed.Inside().Node(args[0]).Command(context.Background(), "true").Run()
	fmt.Printf("impostor got %s; client: outside %t: %v\n", <-got, errors.Is(err, testbed.ErrOutside), err)
	return 0
}

// A program that takes the name of the supervisor's socket before the supervisor does gets
// no command of railbed rsh.
func TestRshRefusesAnImpostor(t *testing.T) {
	tb := up(t, "go-impostor")
	// Only parts of this program run in h0 so far, so that the name is free.
	output, err := tb.Node("h0").Part(t.Context(), impostorPart, "h1").Output()
	if err != nil {
		t.Fatal(err)
	}
	if said := string(output); !strings.HasPrefix(said, "impostor got nothing; client: outside true:") ||
		!strings.Contains(said, "want the supervisor") {
		t.Errorf("%s", said)
	}
}

// A process of the host, or of another engine's container, that joined a node's network is
// root of the same user, and still gets no command started.
func TestRshRefusesProcessesOutsideTheTestbed(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tb := up(t, "go-impostor")
	if err := tb.Node("h0").Command(t.Context(), "true").Run(); err != nil {
		// the socket is open from here on
		t.Fatal(err)
	}
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	network, err := kernel.OpenNamespace(state.Nodes[0].NamespacePath)
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	var conn net.Conn
	if err := network.Do(func() (err error) {
		conn, err = net.Dial("unix", supervisor.InsideSocket)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/plan HTTP/1.1\r\nHost: x\r\n%s: %s\r\n\r\n", supervisor.ProtocolHeader,
		supervisor.Protocol)
	if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		t.Errorf("process %d of user %d, outside the testbed, is answered %s", os.Getpid(), os.Geteuid(),
			answer.Status)
	}
}
