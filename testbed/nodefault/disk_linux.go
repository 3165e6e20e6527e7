package nodefault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// fill leaves no room in nodes' /tmp, where stacks have their data. It needs no memory: the file system gets
// the size that is in use. /tmp of a container belongs to its engine, and cannot be filled.
type fill struct {
	counted
	acting
	size map[string]int64 // in bytes, by node
}

func (k *fill) begin(ctx context.Context, node string) (_ uint64, err error) {
	if k.size[node], err = k.within(ctx, node, diskPart, ""); err != nil {
		return 0, fmt.Errorf("fill the disk of %s: %w", node, err)
	}
	return 1, nil
}

func (k *fill) end(ctx context.Context, node string) error {
	if _, err := k.within(ctx, node, diskPart, strconv.FormatInt(k.size[node], 10)); err != nil {
		return fmt.Errorf("free the disk of %s: %w", node, err)
	}
	return nil
}

// diskPart is the name of the part of the executable that fills a node's /tmp, or frees it.
const diskPart = "disk"

// disk is the file system that is filled. filler is a file in it, because a file system without files cannot
// be limited to its use: tmpfs(5) takes a size of 0 for no limit.
const (
	disk   = "/tmp"
	filler = disk + "/.full"
)

// diskMain is the main function of the part. Its arguments are the PID namespace of the caller, and the size
// in bytes to which the file system is set, or "" to fill it. It prints the file system's size until now.
func diskMain(args []string) int {
	before, err := resizeDisk(args)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(before)
	return 0
}

func resizeDisk(args []string) (before int64, err error) {
	if len(args) != 2 {
		return 0, fmt.Errorf("%d arguments, want a PID namespace and a size", len(args))
	}
	if err := inNode(args[0]); err != nil {
		return 0, err
	}
	before, _, err = diskUse()
	if err != nil {
		return 0, err
	}
	if args[1] == "" {
		return before, fillDisk()
	}
	size, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return 0, err
	}
	// A program may have removed it.
	if err := os.Remove(filler); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	return before, setDisk(size)
}

// fillDisk sets the size of the file system to its use.
func fillDisk() error {
	file, err := os.OpenFile(filler, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return errors.New("another fault has filled it")
	}
	if err != nil {
		return err
	}
	if _, err := file.Write([]byte{0}); err != nil {
		return errors.Join(err, file.Close(), os.Remove(filler))
	}
	if err := file.Close(); err != nil {
		return err
	}
	const attempts = 100 // programs may write between two system calls, and the kernel then refuses the size
	for range attempts {
		var used int64
		if _, used, err = diskUse(); err != nil {
			break
		}
		if err = setDisk(used); !errors.Is(err, unix.EINVAL) {
			break
		}
	}
	if err != nil {
		err = errors.Join(err, os.Remove(filler))
	}
	return err
}

// diskUse returns the size of the file system and the bytes in use.
func diskUse() (size, used int64, err error) {
	var now unix.Statfs_t
	if err := unix.Statfs(disk, &now); err != nil {
		return 0, 0, fmt.Errorf("read the use of %s: %w", disk, err)
	}
	if now.Type != unix.TMPFS_MAGIC {
		return 0, 0, fmt.Errorf("%s is not the node's own tmpfs", disk)
	}
	return int64(now.Blocks) * now.Bsize, int64(now.Blocks-now.Bfree) * now.Bsize, nil
}

// setDisk sets the size of the file system, and reads it back.
func setDisk(size int64) error {
	const flags = unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV
	err := unix.Mount("", disk, "", flags, fmt.Sprintf("size=%d", size))
	if err != nil {
		return fmt.Errorf("set the size of %s to %d: %w", disk, size, err)
	}
	got, _, err := diskUse()
	if err == nil && got != size {
		err = fmt.Errorf("set the size of %s to %d: kernel has %d", disk, size, got)
	}
	return err
}
