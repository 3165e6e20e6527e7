package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/internal/descriptors"
	"railbed/internal/frame"
	"railbed/internal/kernel"
	"railbed/nodes/cni"
)

const (
	// attachTime is how long a plugin may take to make a NIC. It waits for a carrier for 15 s at
	// most.
	attachTime = 30 * time.Second
	// goneEvery is the interval of checks for containers that ended without a DEL.
	goneEvery = time.Second
)

// serveAttach attaches a container. The client receives the name of its node, makes the NIC and
// passes its far end. Until then the client's connection holds the node, so the node is free again
// if the client is killed.
func (s *supervisor) serveAttach(c *frameConn) {
	var request cni.Request
	if err := c.request(&request); err != nil {
		c.fail(err)
		return
	}
	s.freeGone()
	one, err := s.containers.Reserve(request)
	if err != nil {
		c.fail(err)
		return
	}
	if err := s.attach(c, one); err != nil {
		s.containers.Free(one)
		c.fail(err)
		return
	}
	s.events.add("container.attach", one.Made.Node.Name,
		fmt.Sprintf("%s of container %s", one.Interface, one.Container))
	if c.WriteJSON(frame.Exit, struct{}{}) != nil { // the client was killed and no runtime knows of the NIC
		s.detach(one)
	}
}

func (s *supervisor) attach(c *frameConn, one *cni.Attached) error {
	made := *one.Made
	s.fabric.Present(&made)
	if err := c.WriteJSON(frame.Started, &made); err != nil {
		return err
	}
	socket, err := descriptors.Socket(c.conn)
	if err != nil {
		return fmt.Errorf("attach container: %w", err)
	}
	c.setReadDeadline(time.Now().Add(attachTime))
	nic, err := fabric.TakeForeignNIC(socket)
	if err != nil {
		return err
	}
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if err := s.fabric.Join(c.ending, one.Made.End(), nic); err != nil {
		return err
	}
	if !s.containers.Join(one) {
		return errors.Join(fmt.Errorf("attach %s: its container was detached before the NIC was complete",
			one.Made.Node.Name), s.fabric.Leave(one.Made.End()))
	}
	return nil
}

// detach frees a node, unless it was freed already and may belong to another container by now.
func (s *supervisor) detach(one *cni.Attached) {
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if !s.containers.Has(one) {
		return
	}
	if one.Joined {
		if err := s.fabric.Leave(one.Made.End()); err != nil {
			s.log.Warn("detach container", "node", one.Made.Node.Name, "error", err)
		}
	}
	s.containers.Free(one)
	s.events.add("container.detach", one.Made.Node.Name,
		fmt.Sprintf("%s of container %s", one.Interface, one.Container))
}

// freeGone frees the nodes of containers whose namespaces ended without a DEL.
func (s *supervisor) freeGone() {
	gone, err := s.fabric.Gone()
	if err != nil {
		s.log.Warn("look for containers that are gone", "error", err)
	}
	for _, end := range gone {
		for _, one := range s.containers.Find(func(one *cni.Attached) bool {
			return one.Joined && one.Made.End() == end
		}) {
			s.detach(one)
		}
	}
}

func (s *supervisor) watchContainers() error {
	for {
		select {
		case <-s.ending.Done():
			return nil
		case <-time.After(goneEvery):
			s.freeGone()
		}
	}
}

func (s *supervisor) servePorts(w http.ResponseWriter, _ *http.Request) {
	s.freeGone()
	ports := s.containers.Ports()
	for _, p := range ports {
		if p.Attached != nil {
			s.fabric.Present(p.Attached.Made)
		}
	}
	writeJSON(w, http.StatusOK, ports)
}

func (s *supervisor) serveDetach(w http.ResponseWriter, r *http.Request) {
	var key cni.Key
	if err := readJSON(w, r, &key); err != nil {
		writeJSON(w, http.StatusBadRequest, Failure{Error: err.Error()})
		return
	}
	for _, one := range s.containers.Find(func(one *cni.Attached) bool { return one.Key == key }) {
		s.detach(one)
	}
	writeJSON(w, http.StatusOK, s.containers.Left(key))
}

func (s *supervisor) serveCollect(w http.ResponseWriter, r *http.Request) {
	var request cni.Collect
	if err := readJSON(w, r, &request); err != nil {
		writeJSON(w, http.StatusBadRequest, Failure{Error: err.Error()})
		return
	}
	s.freeGone()
	freed := s.containers.Invalid(request)
	for _, one := range freed {
		s.detach(one)
	}
	writeJSON(w, http.StatusOK, freed)
}

// startManagement makes the management network, if the plan has one. The supervisor opens the
// host's network for nothing else.
func (s *supervisor) startManagement(ctx context.Context) (err error) {
	defer unix.Close(networkFd)
	if s.plan.Management == nil {
		return nil
	}
	host, err := kernel.OpenNamespace(fmt.Sprintf("/proc/self/fd/%d", networkFd))
	if err != nil {
		return err
	}
	if s.management, err = cni.StartManagement(ctx, s.plan, s.namespaces, host,
		filepath.Join(s.dir.Path, "management")); err != nil {
		return err
	}
	if closed := s.management.Closed(); closed != nil {
		name := s.management.Interface()
		s.warn(fmt.Sprintf("internet: the host's packet filter drops what it forwards unless a rule lets "+
			"it pass (%s); as in iptables -I FORWARD -i %s -j ACCEPT and iptables -I FORWARD -o %s -j ACCEPT",
			strings.Join(closed, ", "), name, name))
	}
	return nil
}
