package doctor

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/nicqueue"
	"railbed/internal/verdict"
)

// doorbellPatience bounds how long a doorbell may take. It rings at once, unless the host is busy.
const doorbellPatience = 5 * time.Second

// tryKernelBypass opens queues of a NIC as a program of a node does, and passes a frame in each direction.
func tryKernelBypass() (string, error) {
	file, err := nicqueue.Listen()
	if err != nil {
		return "", err
	}
	listener, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("listen for programs: %w", err)
	}
	defer listener.Close()
	g := nicqueue.Geometry{Send: 4, Receive: 4, Room: 1514}
	var device *nicqueue.Device
	granted := make(chan error, 1)
	go func() {
		var err error
		device, err = grantQueues(listener.(*net.UnixListener), g)
		granted <- err
	}()
	program, err := nicqueue.Open(nicqueue.Request{NIC: "eth0", First: 1, Last: 1, Geometry: g})
	if err != nil {
		return "", err
	}
	defer program.Close()
	if err := <-granted; err != nil {
		return "", err
	}
	defer device.Close()
	return "", passFrames(device, program)
}

// grantQueues gives a program queues, as a NIC does.
func grantQueues(listener *net.UnixListener, g nicqueue.Geometry) (*nicqueue.Device, error) {
	conn, err := listener.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	asking, err := nicqueue.Ask(conn)
	if err != nil {
		return nil, err
	}
	device, files, err := nicqueue.Create(g)
	var lacking *verdict.UnsupportedError
	if errors.As(err, &lacking) {
		err = errors.New(lacking.Reason) // the row has the remedy
	}
	if err != nil {
		return nil, errors.Join(err, asking.Refuse(err))
	}
	if err = errors.Join(asking.Grant(files), files.Close()); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return device, nil
}

// passFrames passes a frame in each direction, to a side that waits for its doorbell.
func passFrames(device *nicqueue.Device, program *nicqueue.Program) error {
	const length = 60
	frame := make([]byte, 1514)
	device.Rest(nicqueue.Now() + int64(time.Hour))
	program.Put(length, 0)
	if err := errors.Join(program.Post(), awaitBell(device.Bell())); err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	if n, err := device.Take(frame); n != length || err != nil {
		return fmt.Errorf("send a frame: %d bytes came, want %d: %w", n, length, err)
	}
	program.Rest(1)
	if !device.Deliver(frame[:length], 0, true) {
		return errors.New("receive a frame: the queue has no room")
	}
	if err := errors.Join(device.Ring(), awaitBell(program.Bell())); err != nil {
		return fmt.Errorf("receive a frame: %w", err)
	}
	if received, _, err := program.Next(); len(received) != length || err != nil {
		return fmt.Errorf("receive a frame: %d bytes came, want %d: %w", len(received), length, err)
	}
	return nil
}

// awaitBell waits for a doorbell.
func awaitBell(bell int) error {
	fds := []unix.PollFd{{Fd: int32(bell), Events: unix.POLLIN}}
	for {
		switch n, err := unix.Poll(fds, int(doorbellPatience.Milliseconds())); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for doorbell: %w", err)
		case n == 0:
			return fmt.Errorf("the doorbell did not ring within %v", doorbellPatience)
		default:
			return nil
		}
	}
}
