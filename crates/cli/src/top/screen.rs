//! The whole terminal: lines shown in it, keys read from it, and left as it was at the end.

use std::io::{Write, stdout};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::{Attribute, Color, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use unicode_width::UnicodeWidthChar;

use super::view::{Line, Look};
use crate::error::Error;

/// What a key asks for.
pub(crate) enum Key {
    /// To end.
    End,
    /// To show lines that are further down.
    Down(usize),
    /// To show lines that are further up.
    Up(usize),
    /// The terminal has another size.
    Resized,
    /// Nothing was asked.
    None,
}

/// The terminal, until dropped.
pub(crate) struct Screen {
    is_left: bool,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// It cannot be taken over.
    pub(crate) fn new() -> Result<Screen, Error> {
        terminal::enable_raw_mode()?;
        let screen = Screen { is_left: false };
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Shows as many lines as there is room for, from a line on; returns from which, since there is
    /// no line after the last.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub(crate) fn show(&mut self, lines: &[Line], from: usize) -> Result<usize, Error> {
        let (width, height) = terminal::size()?;
        let (width, height) = (usize::from(width), usize::from(height));
        let from = from.min(lines.len().saturating_sub(height));
        let mut out = stdout().lock();
        queue!(out, BeginSynchronizedUpdate, MoveTo(0, 0))?;
        for (row, line) in lines.iter().skip(from).take(height).enumerate() {
            queue!(out, MoveTo(0, row as u16), ResetColor, SetAttribute(Attribute::Reset))?;
            match line.look {
                Look::Plain => {}
                Look::Strong => queue!(out, SetAttribute(Attribute::Bold))?,
                Look::Soft => queue!(out, SetAttribute(Attribute::Dim))?,
                Look::Bad => queue!(out, SetForegroundColor(Color::Red))?,
            }
            write!(out, "{}", fitting(&line.text, width))?;
            queue!(out, SetAttribute(Attribute::Reset), Clear(ClearType::UntilNewLine))?;
        }
        if lines.len() - from < height {
            queue!(out, MoveTo(0, (lines.len() - from) as u16), Clear(ClearType::FromCursorDown))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()?;
        Ok(from)
    }

    /// What was asked since the last time; does not wait.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub(crate) fn key(&mut self) -> Result<Key, Error> {
        if !poll(Duration::ZERO)? {
            return Ok(Key::None);
        }
        let page = usize::from(terminal::size()?.1.saturating_sub(2).max(1));
        Ok(match read()? {
            Event::Resize(..) => Key::Resized,
            Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::End,
                KeyCode::Char('q') | KeyCode::Esc => Key::End,
                KeyCode::Down | KeyCode::Char('j') => Key::Down(1),
                KeyCode::Up | KeyCode::Char('k') => Key::Up(1),
                KeyCode::PageDown | KeyCode::Char(' ') => Key::Down(page),
                KeyCode::PageUp => Key::Up(page),
                KeyCode::Home => Key::Up(usize::MAX),
                KeyCode::End => Key::Down(usize::MAX / 2),
                _ => Key::None,
            },
            _ => Key::None,
        })
    }

    /// Gives the terminal back as it was.
    pub(crate) fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_left, true) {
            // A terminal that is gone needs nothing.
            let _ = execute!(stdout(), Show, LeaveAlternateScreen);
            let _ = terminal::disable_raw_mode();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// As much of a text as fits into so many columns.
fn fitting(text: &str, columns: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(fitting("abc", 2), "ab");
        assert_eq!(fitting("\u{4e2d}\u{6587}", 3), "\u{4e2d}");
        assert_eq!(fitting("ab", 80), "ab");
    }
}
