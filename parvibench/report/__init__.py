"""From a store to leaderboards: tables, figures, one self-contained page."""
