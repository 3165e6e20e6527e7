package testbed_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/nodes/docker"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
)

// TestHangingEngine: an engine that accepts connections and does not answer delays only callers
// that want a dead testbed's name.
func TestHangingEngine(t *testing.T) {
	if os.Getuid() != 0 {
		t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	}
	folder, err := os.MkdirTemp("", "engine") // of a short name
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	socket := filepath.Join(folder, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			asked <- conn
		}
	}()
	dir, lock, err := rundir.Claim("go-hanging")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir.Path)
	if _, err := dir.Publish(rundir.Published{Containers: "unix://" + socket}); err != nil {
		t.Fatal(err)
	}
	lock.Close() // it is dead
	swept := make(chan error, 1)
	go func() {
		_, err := rundir.Sweep(rundir.SweepOptions{Patience: time.Minute})
		swept <- err
	}()
	engine := <-asked
	same := make(chan error, 1)
	go func() {
		_, _, err := rundir.Claim("go-hanging")
		same <- err
	}()
	other := make(chan error, 1)
	go func() {
		dir, lock, err := rundir.Claim("go-beside")
		if err == nil {
			err = errors.Join(dir.Remove(), lock.Close())
		}
		other <- err
	}()
	select {
	case err := <-other:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hosttest.Bound):
		t.Error("another testbed waits for the engine")
	}
	select {
	case err := <-same:
		t.Errorf("the name is had, or refused, while it is swept: %v", err)
	case err := <-swept:
		t.Errorf("the sweep is over, error %v", err)
	default:
	}
	listener.Close()
	engine.Close()
	if err := <-swept; !errors.Is(err, rundir.ErrEngineAway) {
		t.Errorf("sweep: %v, want that the engine does not answer", err)
	}
	if err := <-same; !errors.Is(err, verdict.ErrUnsupported) ||
		!strings.Contains(err.Error(), "railbed gc") {
		t.Errorf("claim of the dead testbed's name: %v", err)
	}
	forgot, err := rundir.Sweep(rundir.SweepOptions{Forget: true})
	if err != nil || !strings.Contains(strings.Join(leftOf(forgot, dir.Name), ""), socket) {
		t.Errorf("swept %+v, error %v; want what it left in %s", forgot, err, socket)
	}
	if _, err := os.Lstat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left", dir.Path)
	}
}

func leftOf(all []rundir.Swept, name string) (left []string) {
	for _, swept := range all {
		if swept.Name == name {
			left = append(left, swept.Left...)
		}
	}
	return left
}

// gcBesideUp has a testbed begin whose name containers without a run directory have, when
// gc has found those and removes them: it is not to take the testbed's for them.
func gcBesideUp(t *testing.T, engine *dockertest.Engine) {
	dir, err := rundir.Of("go-gone")
	if err != nil {
		t.Fatal(err)
	}
	create := func(node string) error {
		_, err := engine.Docker("create", "--name", "railbed-go-gone-"+node,
			"--label="+docker.LabelTestbed+"=go-gone",
			"--label="+docker.LabelNode+"="+node, "--label="+docker.LabelRunDir+"="+dir.Path, "none", "true")
		return err
	}
	nothing := exec.Command("tar", "-c", "-T", "/dev/null")
	load := exec.Command("docker", "--host", engine.Host, "import", "-", "none")
	if load.Stdin, err = nothing.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(nothing.Start(), load.Run(), nothing.Wait(), create("h0")); err != nil {
		t.Fatal(err)
	}
	up := make(chan error, 1)
	var lists atomic.Int32
	begin := func() {
		_, lock, err := rundir.Claim("go-gone")
		if err == nil {
			err = create("h1")
			defer lock.Close()
		}
		up <- err
	}
	t.Setenv("DOCKER_HOST", proxy(t, engine.Host, func(r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/containers/json") {
			return
		}
		if lists.Add(1) == 2 { // the list of containers to remove
			go begin()
			time.Sleep(300 * time.Millisecond) // time for begin to claim the name, if it can
		}
	}))
	swept, err := testbed.SweepContainers(false)
	if err != nil || len(swept) != 1 ||
		!slices.Equal(swept[0].Removed, []string{"container railbed-go-gone-h0"}) {
		t.Errorf("swept %+v, error %v; want h0's", swept, err)
	}
	if err := <-up; err != nil {
		t.Error(err)
	}
	if out, err := engine.Docker("ps", "-a", "--format", "{{.Names}}"); err != nil ||
		out != "railbed-go-gone-h1" {
		t.Errorf("there are %q, error %v; want the container of the testbed that began", out, err)
	}
	if _, err := rundir.Sweep(rundir.SweepOptions{}); err != nil {
		t.Error(err)
	}
	if out, err := engine.Docker("rm", "-f", "railbed-go-gone-h1"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := engine.Docker("rmi", "none"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
}

// proxy stands before an engine and tells of each request before it passes it on.
func proxy(t *testing.T, host string, tell func(*http.Request)) (address string) {
	socket := strings.TrimPrefix(host, "unix://")
	listener, err := net.Listen("unix", socket+"p")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	server := &http.Server{Handler: &httputil.ReverseProxy{Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			tell(r.In)
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine"
		}}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		transport.CloseIdleConnections()
		<-ended
	})
	return "unix://" + socket + "p"
}
