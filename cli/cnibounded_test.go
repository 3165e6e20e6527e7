package cli_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"railbed/fabric"
	"railbed/internal/frame"
	"railbed/internal/rundir"
	"railbed/plan"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// A supervisor that asks the plugin for more than a NIC gets nothing made in the container.
func TestCNIRefusesRoutesOfOthers(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const name = "cli-greedy"
	dir, lock, err := rundir.Claim(name)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir.Path)
	defer lock.Close()
	p := plantest.Compile(t, cniFile(name))
	at := fabric.NewAttachment(p, p.CNINodes()[0], 0, false)
	at.Node.Routes = append(at.Node.Routes,
		plan.Route{Dst: netip.MustParsePrefix("0.0.0.0/1"),
			NextHops: []plan.NextHop{{Dev: at.Interface().Name}}})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/plan", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "{}") })
	mux.HandleFunc("POST /v1/containers/attach", func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: "+
			"%s\r\n\r\n", supervisor.Upgrade, supervisor.ProtocolHeader, supervisor.Protocol)
		if _, _, err := frame.NewReader(buffered).Read(); err != nil {
			t.Error(err)
		}
		if err := frame.NewWriter(conn).WriteJSON(frame.Started, at); err != nil {
			t.Error(err)
		}
		_, _ = conn.Read(make([]byte, 1)) // until the plugin has gone
	})
	listener, err := net.Listen("unix", dir.Socket())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(supervisor.ProtocolHeader, supervisor.Protocol)
		mux.ServeHTTP(w, r)
	})}
	defer server.Close()
	go server.Serve(listener)
	c := newContainer(t, "greedy")
	before := c.must(t, "ip", "-o", "address") + c.must(t, "ip", "route")
	config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","type":"railbed","testbed":%q,"directory":%q}`,
		name, dir.Path)
	if code, _, answer := call(t, "ADD", c, config); code == 0 ||
		!strings.Contains(answer.Msg, "route to 0.0.0.0/1") {
		t.Errorf("exit code %d, %+v; want the route refused", code, answer)
	}
	if after := c.must(t, "ip", "-o", "address") + c.must(t, "ip", "route"); after != before {
		t.Errorf("the container has\n%s\nand had\n%s", after, before)
	}
}
