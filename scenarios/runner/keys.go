package runner

import (
	"errors"
	"fmt"

	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/worker"
)

// keysMode makes key logs unreadable for other users.
const keysMode = 0o600

// secretOf generates the secret of a workload, or returns nil if the workload does not encrypt.
func (s *session) secretOf(r *spec.RD) privacy.Material {
	switch {
	case r == nil || !r.Encrypt:
		return nil
	case s.secret != nil:
		return s.secret()
	}
	return privacy.Generate()
}

// logKeys writes the keys that decrypt a workload's packets, and keeps them for the checks, if the
// file asks for it.
func (s *session) logKeys(index int, job *worker.Job, result *worker.Result) error {
	if job.RD == nil || !job.RD.KeyLog {
		return nil
	}
	var lives []uint64
	for _, r := range result.PerRank {
		lives = append(lives, r.Life)
	}
	name := job.Name + ".keys"
	file, err := s.results.create(name)
	if err != nil {
		return err
	}
	err = errors.Join(file.Chmod(keysMode), privacy.WriteKeyLog(file, job.Secret, lives), file.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	s.logged(index, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = privacy.NewKeyLog()
	}
	return s.keys.Add(job.Secret, lives)
}

// keysNow returns the keys that were logged so far, or nil if there are none.
func (s *session) keysNow() *privacy.KeyLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}
