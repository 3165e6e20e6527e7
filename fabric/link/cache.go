package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"railbed/internal/units"
)

// Calibration provides the burst that each shaped rate needs on this host. It measures unknown
// bursts and stores them in a file. It is safe for concurrent use, also by several processes with
// the same file.
type Calibration struct {
	path string
	host hostFacts

	lock      sync.Mutex
	entries   map[key]Entry
	notStored error
	measure   func(ctx context.Context, rate units.Rate, mtu int) (Entry, error)
}

// Entry is the result of a measurement.
type Entry struct {
	Rate units.Rate `json:"rate"`
	MTU  int        `json:"mtu"`
	// Burst is the smallest that reaches the rate within 1 %, or the largest allowed where others kept
	// the CPUs busy.
	Burst units.Bytes `json:"burst"`
	// Achieved is the rate with this burst, the median of several measurements, in bits of whole
	// frames per second.
	Achieved units.Rate `json:"achieved"`
	// Measured is the time of the measurement.
	Measured time.Time `json:"measured"`
}

// hostFacts are properties of the host that a measurement depends on and a reboot does not change.
type hostFacts struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
}

// key is the key of an entry.
type key struct {
	host  hostFacts
	qdisc string
	rate  units.Rate
	mtu   int
}

// qdisc is the shaping queueing discipline; an entry is valid only for this one.
const qdisc = "tbf"

// cacheFile is the content of the file. Entries of other hosts are kept: home directories move
// between machines.
type cacheFile struct {
	Version int           `json:"version"`
	Entries []cachedEntry `json:"entries"`
}

type cachedEntry struct {
	hostFacts
	Qdisc string `json:"qdisc"`
	Entry
}

// cacheVersion changes with the method of measurement.
const cacheVersion = 2

// defaultPath returns the file for calibrations: in /var/cache/railbed for root, else in the user's
// cache directory. In a user namespace everyone looks like root, so the right to write decides.
func defaultPath() (string, error) {
	const system = "/var/cache/railbed"
	if os.Geteuid() == 0 && writableDir(system) {
		return filepath.Join(system, "calibration.json"), nil
	}
	user, err := os.UserCacheDir() // $XDG_CACHE_HOME or ~/.cache
	if err != nil {
		return "", fmt.Errorf("find the directory of the calibration file: %w", err)
	}
	return filepath.Join(user, "railbed", "calibration.json"), nil
}

func writableDir(dir string) bool {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false
	}
	probe, err := os.CreateTemp(dir, ".probe")
	if err != nil {
		return false
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name())) == nil
}

// LoadCalibration reads the calibrations stored in path, or in DefaultPath if path is empty. A
// file that is missing, damaged, unreadable or another user's counts as empty: everything in it can be
// measured again.
func LoadCalibration(path string) (*Calibration, error) {
	if path == "" {
		var err error
		if path, err = defaultPath(); err != nil {
			return nil, err
		}
	}
	host, err := readHostFacts()
	if err != nil {
		return nil, fmt.Errorf("load calibration: %w", err)
	}
	c := &Calibration{path: path, host: host, measure: measureBurst}
	c.entries = c.read()
	return c, nil
}

func (c *Calibration) key(rate units.Rate, mtu int) key { return key{c.host, qdisc, rate, mtu} }

// Known returns the entry of a rate and MTU, if it has been measured before.
func (c *Calibration) Known(rate units.Rate, mtu int) (Entry, bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	entry, known := c.entries[c.key(rate, mtu)]
	return entry, known
}

// NotStored returns the first error that prevented Burst from storing a result, or nil.
func (c *Calibration) NotStored() error {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.notStored
}

// Burst returns the burst that a link of this rate and MTU needs. If it is not known, Burst
// measures it, for about a second, and stores the result. Other processes that calibrate with the
// same file wait meanwhile: two measurements at once would disturb each other. A result that cannot
// be stored is valid all the same: see NotStored. If the host cannot reach the rate, the error is an
// UnreachableError.
func (c *Calibration) Burst(ctx context.Context, rate units.Rate, mtu int) (Entry, error) {
	if entry, known := c.Known(rate, mtu); known {
		return entry, nil
	}
	unlock, storeErr := c.lockStore(ctx)
	if err := context.Cause(ctx); err != nil {
		unlock()
		return Entry{}, fmt.Errorf("calibrate %s at MTU %d: %w", rate, mtu, err)
	}
	defer unlock()
	c.lock.Lock()
	defer c.lock.Unlock()
	merged := c.read() // another process may have measured while this one waited
	maps.Copy(merged, c.entries)
	c.entries = merged
	if entry, known := c.entries[c.key(rate, mtu)]; known {
		return entry, nil
	}
	entry, err := c.measure(ctx, rate, mtu)
	if err != nil {
		return Entry{}, err
	}
	c.entries[c.key(rate, mtu)] = entry
	if storeErr == nil && !entry.plausible() {
		storeErr = fmt.Errorf("other processes kept the CPUs busy: reached %s of %s at MTU %d",
			roundRate(entry.Achieved), rate, mtu)
	}
	if storeErr == nil {
		storeErr = c.write()
	}
	if storeErr != nil && c.notStored == nil {
		c.notStored = fmt.Errorf("store calibration: %w", storeErr)
	}
	return entry, nil
}

// lockStore makes the file's directory and locks the file against other processes. It returns a
// function to call in any case.
func (c *Calibration) lockStore(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(c.path), 0o755); err != nil {
		return func() {}, err
	}
	return lockFile(ctx, c.path+".lock")
}

// read reads the file.
func (c *Calibration) read() map[key]Entry {
	entries := map[key]Entry{}
	var file cacheFile
	text, err := readOwn(c.path)
	if err != nil || json.Unmarshal(text, &file) != nil || file.Version != cacheVersion {
		return entries // missing, damaged, or measured by another method
	}
	for _, e := range file.Entries {
		if e.plausible() {
			entries[key{e.hostFacts, e.Qdisc, e.Rate, e.MTU}] = e.Entry
		}
	}
	return entries
}

// plausible refuses entries that cannot be the result of a measurement, so that a damaged file
// cannot shape a link wrongly.
func (e Entry) plausible() bool {
	return e.Rate > 0 && e.MTU > 0 && e.Burst >= frameLength(e.MTU) && e.Burst <= maxBurst(e.Rate, e.MTU) &&
		reached(e.Achieved, e.Rate)
}

// write replaces the file as a whole, so that a reader never sees a partial file. The caller holds
// the file lock.
func (c *Calibration) write() error {
	file := cacheFile{Version: cacheVersion}
	for k, entry := range c.entries {
		file.Entries = append(file.Entries, cachedEntry{k.host, k.qdisc, entry})
	}
	sortEntries(file.Entries)
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(c.path), ".calibration")
	if err != nil {
		return err
	}
	_, err = temp.Write(append(text, '\n'))
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), c.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}
