package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/kernel"
	"railbed/nodes"
	"railbed/plan"
)

// tapName is the name of a NIC's tap, in the NIC's namespace. No NIC can have such a name.
func tapName(nic int) string { return fmt.Sprintf("@vm%d", nic) }

// tapQueue is the size of each tap's queue to the guest, in bytes. A guest without KVM may not run
// for some milliseconds.
const tapQueue = 4 << 20

func net48(mac plan.MAC) string { return net.HardwareAddr(mac[:]).String() }

// openTaps makes a tap for each NIC of the node and joins the two. A tap disappears with its last
// descriptor.
func openTaps(config nodes.Config) (taps []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(taps)
			taps = nil
		}
	}()
	err = config.Namespace.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		batch := kernel.NewBatch(config.Node.Name, config.Trace)
		for i, nic := range config.Node.GuestNICs() {
			handle, err := port.Open(port.Tap, tapName(i), port.Options{MTU: nic.MTU, RingBytes: tapQueue})
			if err != nil {
				return err
			}
			closeAll(handle.Files[1:]) // counters, which are not used
			taps = append(taps, handle.Files[0])
			if config.Trace != nil {
				config.Trace(fmt.Sprintf("ip -n %s tuntap add %s mode tap", config.Node.Name, tapName(i)))
			}
			batch.SetUp(tapName(i), handle.Description.Index, true)
		}
		return conn.Do(batch)
	})
	if err == nil {
		_, err = join(config)
	}
	if err == nil && config.Trace != nil {
		for i, nic := range config.Node.GuestNICs() {
			config.Trace(kernel.RedirectLine(config.Node.Name, nic.Name, tapName(i)))
			config.Trace(kernel.RedirectLine(config.Node.Name, tapName(i), nic.Name))
		}
	}
	return taps, err
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// join redirects frames from each NIC to its tap and back, and returns which NICs have a carrier.
func join(config nodes.Config) (carrier []bool, err error) {
	conn, err := kernel.OpenIn(config.Namespace)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	links, err := conn.Links(false)
	if err != nil {
		return nil, err
	}
	find := func(name string) (kernel.Link, error) {
		at := slices.IndexFunc(links, func(l kernel.Link) bool { return l.Name == name })
		if at < 0 {
			return kernel.Link{}, fmt.Errorf("join NICs of %s: kernel has no interface %s", config.Node.Name,
				name)
		}
		return links[at], nil
	}
	for i, nic := range config.Node.GuestNICs() {
		outside, err := find(nic.Name)
		if err != nil {
			return nil, err
		}
		tap, err := find(tapName(i))
		if err != nil {
			return nil, err
		}
		carrier = append(carrier, outside.Up && outside.Carrier)
		for _, way := range [][2]int{{outside.Index, tap.Index}, {tap.Index, outside.Index}} {
			if err := kernel.Redirect(config.Namespace, way[0], way[1]); err != nil {
				return nil, err
			}
		}
	}
	return carrier, nil
}

// cables passes changes of the node's NICs on to the guest: carriers, and links that were made
// anew. Its zero value does nothing.
type cables struct {
	config  nodes.Config
	monitor *monitor
	events  *os.File
	done    sync.WaitGroup
	plugged []bool
}

// watchCables begins to watch. QEMU's NICs have a carrier at first.
func watchCables(config nodes.Config, m *monitor) (*cables, error) {
	c := &cables{config: config, monitor: m,
		plugged: slices.Repeat([]bool{true}, len(config.Node.GuestNICs()))}
	if len(c.plugged) == 0 {
		return c, nil
	}
	var err error
	if c.events, err = kernel.LinkEvents(config.Namespace); err != nil {
		return nil, err
	}
	if err := c.join(); err != nil {
		return nil, errors.Join(err, c.events.Close())
	}
	c.done.Go(c.follow)
	return c, nil
}

func (c *cables) follow() {
	buffer := make([]byte, 16<<10)
	for {
		if _, err := c.events.Read(buffer); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return // closed
		}
		// A link that is being made anew is missing for a moment. Its creation is another event.
		_ = c.join()
	}
}

func (c *cables) join() error {
	carrier, err := join(c.config)
	if err != nil {
		return err
	}
	for i, has := range carrier {
		if has == c.plugged[i] {
			continue
		}
		if err := c.monitor.setLink(netdev(i), has); err != nil {
			return err
		}
		c.plugged[i] = has
	}
	return nil
}

func (c *cables) close() {
	if c.events != nil {
		c.events.Close()
		c.done.Wait()
	}
}

// monitor is a client of QMP, QEMU's machine protocol: JSON objects in both directions.
type monitor struct {
	to   *json.Encoder
	from *json.Decoder
}

// openMonitor reads the greeting and ends the negotiation.
func openMonitor(channel *os.File) (*monitor, error) {
	m := &monitor{to: json.NewEncoder(channel), from: json.NewDecoder(channel)}
	var greeting struct{ QMP *json.RawMessage }
	err := m.from.Decode(&greeting)
	if err == nil && greeting.QMP == nil {
		err = errors.New("QEMU sent no greeting")
	}
	if err != nil {
		return nil, fmt.Errorf("open monitor of QEMU: %w", err)
	}
	return m, m.do("qmp_capabilities", nil)
}

// do executes a command and waits for its answer. It skips events.
func (m *monitor) do(command string, arguments any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := m.to.Encode(request); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	for {
		var answer struct {
			Return *json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := m.from.Decode(&answer); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
}

// setLink sets the carrier of a NIC.
func (m *monitor) setLink(nic string, up bool) error {
	return m.do("set_link", map[string]any{"name": nic, "up": up})
}
